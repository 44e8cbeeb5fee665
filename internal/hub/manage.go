package hub

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/internal/filelock"
	"github.com/heftai/heft/internal/hubcache"
)

// A CachedModel is a snapshot of a model in the cache.
type CachedModel struct {
	Repo     string    `json:"model"`
	Commit   string    `json:"commit"`
	Refs     []string  `json:"revisions"` // branches and tags that point to Commit, sorted
	Dir      string    `json:"folder"`
	Bytes    int64     `json:"bytes"`    // of its files; snapshots of one model may share them
	Complete bool      `json:"complete"` // the snapshot has config.json and all weights
	Pulled   time.Time `json:"pulled"`   // when the snapshot's folder last changed
}

// List returns the models in the cache, sorted by name and commit. A download that was
// interrupted before its first file has no snapshot and is not listed. List uses no network
// and locks nothing. An absent cache holds no models.
func (c *Client) List() ([]CachedModel, error) {
	entries, err := os.ReadDir(c.config.Cache)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, disk("reading the cache", err)
	}
	var models []CachedModel
	for _, e := range entries {
		if repo, ok := repoOf(e.Name()); ok {
			models = append(models, c.snapshots(repo)...)
		}
	}
	slices.SortFunc(models, func(a, b CachedModel) int {
		return strings.Compare(a.Repo+"\x00"+a.Commit, b.Repo+"\x00"+b.Commit)
	})
	return models, nil
}

// repoOf is the inverse of Repo.Folder.
func repoOf(folder string) (Repo, bool) {
	name, ok := strings.CutPrefix(folder, "models--")
	if !ok {
		return Repo{}, false
	}
	repo, _, err := ParseRepo(strings.Replace(name, "--", "/", 1))
	return repo, err == nil && repo.Folder() == folder
}

// snapshots returns the snapshots of one model, in no order.
func (c *Client) snapshots(repo Repo) []CachedModel {
	p := c.paths(repo)
	entries, err := os.ReadDir(filepath.Join(p.root, "snapshots"))
	if err != nil {
		return nil // a folder that has no snapshots is no model
	}
	refs := p.refs()
	var found []CachedModel
	for _, e := range entries {
		if !hubcache.IsCommit(e.Name()) {
			continue
		}
		m := CachedModel{Repo: repo.String(), Commit: e.Name(), Refs: refs[e.Name()], Dir: p.snapshot(e.Name())}
		_, m.Bytes = walk(m.Dir)
		if names, err := fs.Glob(os.DirFS(m.Dir), "*"); err == nil {
			m.Complete = missing(m.Dir, names) == nil
		}
		if info, err := os.Stat(m.Dir); err == nil {
			m.Pulled = info.ModTime()
		}
		found = append(found, m)
	}
	return found
}

// refs returns the branches and tags of each commit.
func (p paths) refs() map[string][]string {
	root := filepath.Join(p.root, "refs")
	refs := map[string][]string{}
	_ = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return nil // an unreadable ref means no commit
		}
		if commit, err := p.resolve(name); err == nil && commit != "" && !hubcache.IsCommit(name) {
			refs[commit] = append(refs[commit], name)
		}
		return nil
	})
	for _, names := range refs {
		slices.Sort(names)
	}
	return refs
}

// Remove deletes a snapshot from the cache, with the blobs that no other snapshot uses. An empty
// revision deletes the whole model. It returns the freed bytes. It fails with kind [NotCached] if
// the cache does not have the revision, and with [Busy] while another process pulls the model. A
// server that has the files open can use them until it ends.
func (c *Client) Remove(repo Repo, revision string) (freed int64, err error) {
	freed, err = c.remove(repo, revision)
	return freed, inFile(err, repo, "")
}

func (c *Client) remove(repo Repo, revision string) (int64, error) {
	p := c.paths(repo)
	root, err := filepath.EvalSymlinks(p.root) // large models are often links to another disk
	if err != nil {
		return 0, failf(NotCached, "it is not in the cache %s", c.config.Cache)
	}
	unlock, err := p.lockAll()
	if err != nil {
		return 0, err
	}
	defer unlock()
	before := used(root)
	if revision != "" {
		if err := checkRevision(revision); err != nil {
			return 0, err
		}
		last, err := c.removeSnapshot(repo, revision)
		if err != nil || !last {
			return before - used(root), err
		}
	}
	if err := errors.Join(os.RemoveAll(root), os.RemoveAll(p.root)); err != nil {
		return before - used(root), disk("removing", err)
	}
	unlock() // some systems do not remove open files
	if err := os.RemoveAll(p.locks); err != nil {
		return before, disk("removing the locks", err)
	}
	return before, nil
}

// removeSnapshot deletes the snapshot of revision. It reports whether it was the last one.
func (c *Client) removeSnapshot(repo Repo, revision string) (last bool, err error) {
	p := c.paths(repo)
	commit, err := p.resolve(revision)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(p.snapshot(commit)); commit == "" || err != nil {
		return false, failf(NotCached, "revision %s is not in the cache %s", printable(revision), c.config.Cache)
	}
	for _, ref := range p.refs()[commit] {
		if err := os.Remove(p.ref(ref)); err != nil {
			return false, disk("removing a ref", err)
		}
	}
	if err := os.RemoveAll(p.snapshot(commit)); err != nil {
		return false, disk("removing a snapshot", err)
	}
	left := c.snapshots(repo)
	if len(left) == 0 {
		return true, nil
	}
	return false, p.sweep(left)
}

// sweep deletes the blobs and headers that no snapshot in kept uses.
func (p paths) sweep(kept []CachedModel) error {
	inUse := map[string]bool{}
	for _, m := range kept {
		names, _ := walk(m.Dir)
		for _, name := range names {
			if target, err := os.Readlink(filepath.Join(m.Dir, filepath.FromSlash(name))); err == nil {
				inUse[filepath.Base(target)] = true
			}
		}
	}
	for _, folder := range []string{"blobs", "headers"} {
		dir := filepath.Join(p.root, folder)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk("reading the blobs", err)
		}
		for _, e := range entries {
			if hash, _, _ := strings.Cut(e.Name(), "."); inUse[hash] {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return disk("removing a blob", err)
			}
		}
	}
	return nil
}

// lockAll locks all blobs, so that no download runs.
func (p paths) lockAll() (unlock func(), err error) {
	var unlocks []func()
	unlock = func() {
		for _, f := range unlocks {
			f()
		}
	}
	entries, err := os.ReadDir(p.locks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, disk("reading the locks", err)
	}
	for _, e := range entries {
		one, err := tryLock(filepath.Join(p.locks, e.Name()))
		if errors.Is(err, filelock.ErrLocked) {
			unlock()
			return nil, failf(Busy, "another process is pulling it")
		}
		if err != nil {
			unlock()
			return nil, disk("locking", err)
		}
		unlocks = append(unlocks, one)
	}
	return unlock, nil
}

// used returns the size of the regular files below dir, each counted once.
func used(dir string) int64 {
	var bytes int64
	_ = fs.WalkDir(os.DirFS(dir), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // links are counted where they lead
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// PullSize returns the approximate number of bytes that Pull needs for serving, including cached
// files, according to the hub's listing. A file whose size the hub does not list counts as 0 bytes.
func (c *Client) PullSize(ctx context.Context, repo Repo, revision string) (int64, error) {
	if revision == "" {
		revision = mainRevision
	}
	if err := checkRevision(revision); err != nil {
		return 0, inFile(err, repo, "")
	}
	l, err := c.list(ctx, repo, revision)
	if err != nil {
		return 0, inFile(err, repo, "")
	}
	first, weights := forServing(l.names())
	var bytes int64
	for _, e := range l.files {
		sharded := weights.index != "" && strings.HasSuffix(e.name, shardSuffix) && !strings.Contains(e.name, "/")
		if sharded || slices.Contains(weights.shards, e.name) || slices.Contains(first, e.name) {
			bytes += max(0, e.size)
		}
	}
	return bytes, nil
}
