package hub

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

const mainRevision = hubcache.Main

// filesAtOnce is the number of files that are downloaded at a time, each in parts.
const filesAtOnce = 4

// PullOptions configure a pull.
type PullOptions struct {
	Revision string         // branch, tag or commit; empty: main
	Include  []string       // patterns of files to pull; none: what serving needs
	Exclude  []string       // patterns of files not to pull
	GGUF     string         // type of the GGUF file to pull, such as Q4_K_M; empty: safetensors
	Progress func(Progress) // called by one goroutine at a time; may be nil
}

// A Snapshot describes the files of one commit in the cache.
type Snapshot struct {
	Repo    string   `json:"model"`
	Commit  string   `json:"commit"`
	Dir     string   `json:"folder"`
	Files   []string `json:"files"`
	Bytes   int64    `json:"bytes"`   // of all files
	Fetched int64    `json:"fetched"` // bytes that came over the network now
}

// Pull downloads the files of a revision to the cache and returns the snapshot. It does not fetch
// cached files again, and continues an interrupted download. If the client is offline, it returns
// the cached snapshot if that is complete. All errors except those of ctx are *[Error].
func (c *Client) Pull(ctx context.Context, repo Repo, o PullOptions) (*Snapshot, error) {
	s, err := c.pull(ctx, repo, o)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s, inFile(err, repo, "")
}

func (c *Client) pull(ctx context.Context, repo Repo, o PullOptions) (*Snapshot, error) {
	if o.Revision == "" {
		o.Revision = mainRevision
	}
	for _, err := range []error{checkRevision(o.Revision), checkPatterns(o.Include), checkPatterns(o.Exclude)} {
		if err != nil {
			return nil, err
		}
	}
	if c.config.Offline {
		return c.pullOffline(repo, o.Revision)
	}
	l, err := c.list(ctx, repo, o.Revision)
	if err != nil {
		return nil, err
	}
	p := &pull{Client: c, repo: repo, listing: l, meter: newMeter(o.Progress)}
	if err := p.run(ctx, o); err != nil {
		return nil, err
	}
	paths := c.paths(repo)
	if err := paths.setRef(o.Revision, l.commit); err != nil {
		return nil, err
	}
	s := &Snapshot{Repo: repo.String(), Commit: l.commit, Dir: paths.snapshot(l.commit), Fetched: p.meter.fetched()}
	for _, f := range p.files {
		s.Files = append(s.Files, f.name)
		s.Bytes += f.size
	}
	slices.Sort(s.Files)
	return s, nil
}

// pullOffline returns the cached snapshot.
func (c *Client) pullOffline(repo Repo, revision string) (*Snapshot, error) {
	dir, err := c.cached(repo, revision)
	if Is(err, NotCached) {
		return nil, &Error{Kind: Offline, Reason: "offline, as HF_HUB_OFFLINE says", Err: err}
	}
	if err != nil {
		return nil, err
	}
	commit, err := c.paths(repo).resolve(revision)
	s := &Snapshot{Repo: repo.String(), Commit: commit, Dir: dir}
	s.Files, s.Bytes = walk(dir)
	return s, err
}

// A pull is one call of Pull.
type pull struct {
	*Client
	repo    Repo
	listing *listing
	meter   *meter
	files   []file // that were fetched
}

// run fetches the weights after all other files.
func (p *pull) run(ctx context.Context, o PullOptions) error {
	names := p.listing.names()
	if len(o.Include) > 0 {
		isWeight := func(name string) bool { return strings.HasSuffix(name, shardSuffix) }
		chosen := filter(names, o.Include, o.Exclude)
		if len(chosen) == 0 {
			return failf(NotFound, "no file of the revision matches %s", strings.Join(o.Include, ", "))
		}
		if err := p.bring(ctx, slices.DeleteFunc(slices.Clone(chosen), isWeight)); err != nil {
			return err
		}
		return p.bring(ctx, slices.DeleteFunc(chosen, func(name string) bool { return !isWeight(name) }))
	}
	if o.GGUF != "" {
		chosen, err := GGUFFiles(names, o.GGUF)
		if err != nil {
			return err
		}
		return p.bring(ctx, chosen)
	}
	first, weights := forServing(names)
	if weights.index == "" && len(weights.shards) == 0 {
		return noWeights(names)
	}
	if err := p.bring(ctx, filter(first, nil, o.Exclude)); err != nil {
		return err
	}
	if weights.index != "" && len(filter([]string{weights.index}, nil, o.Exclude)) > 0 {
		var err error
		if weights.shards, err = p.index(weights.index); err != nil {
			return err
		}
	}
	return p.bring(ctx, filter(weights.shards, nil, o.Exclude))
}

// index returns the shards in the index, which was fetched.
func (p *pull) index(name string) ([]string, error) {
	text, err := os.ReadFile(p.paths(p.repo).pointer(p.listing.commit, name))
	if err != nil {
		return nil, disk("reading the index", err)
	}
	shards, err := readIndex(text)
	return shards, inFile(err, p.repo, name)
}

// bring fetches the named files, a few at a time.
func (p *pull) bring(ctx context.Context, names []string) error {
	files := make([]file, len(names))
	err := each(ctx, p.config.Connections, names, func(ctx context.Context, i int, name string) (err error) {
		files[i], err = p.look(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	p.meter.expect(files)
	p.files = append(p.files, files...)
	return each(ctx, filesAtOnce, files, func(ctx context.Context, _ int, f file) error {
		return (&fetch{p.Client, f, p.meter}).run(ctx)
	})
}

// look returns a file's entry from the listing and the headers.
func (p *pull) look(ctx context.Context, name string) (file, error) {
	e, ok := p.listing.find(name)
	if !ok {
		return file{}, inFile(failf(Corrupt, "the index names it, and the revision does not have it"), p.repo, name)
	}
	if reason := hubcache.UnsafePath(name); reason != "" {
		return file{}, inFile(failf(BadName, "the file's name %s", reason), p.repo, name)
	}
	return p.stat(ctx, p.repo, p.listing.commit, e)
}

// String returns the model and its commit.
func (s *Snapshot) String() string { return fmt.Sprintf("%s at %s", s.Repo, s.Commit) }
