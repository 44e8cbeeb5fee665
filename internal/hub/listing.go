package hub

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

// maxListing is the longest listing that is read, in bytes.
const maxListing = 64 << 20

// A listing is the files of one commit.
type listing struct {
	commit string
	files  []entry
}

// An entry is a file as the listing has it; hash and size are unknown with some servers.
type entry struct {
	name string
	hash string // empty: unknown
	size int64  // -1: unknown
}

func (l *listing) find(name string) (entry, bool) {
	for _, e := range l.files {
		if e.name == name {
			return e, true
		}
	}
	return entry{}, false
}

func (l *listing) names() []string {
	names := make([]string, len(l.files))
	for i, e := range l.files {
		names[i] = e.name
	}
	return names
}

// parseListing reads the answer of /api/models/ORG/NAME/revision/REVISION?blobs=true.
func parseListing(text []byte) (*listing, error) {
	var wire struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
			Size *int64 `json:"size"`
			Blob string `json:"blobId"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				Size   *int64 `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		return nil, &Error{Kind: Corrupt, Reason: "the listing of files is not what a hub sends", Err: err}
	}
	if !hubcache.IsCommit(wire.SHA) {
		return nil, failf(Corrupt, "the listing names the commit %s, which is none", printable(wire.SHA))
	}
	l := &listing{commit: wire.SHA, files: make([]entry, 0, len(wire.Siblings))}
	seen := make(map[string]bool, len(wire.Siblings))
	for _, s := range wire.Siblings {
		e := entry{name: s.Name, hash: s.Blob, size: -1}
		if s.Size != nil {
			e.size = *s.Size
		}
		if s.LFS != nil {
			if e.hash = s.LFS.SHA256; s.LFS.Size != nil {
				e.size = *s.LFS.Size
			}
		}
		switch reason := hubcache.Hostile(e.name); {
		case reason != "":
			return nil, failf(Corrupt, "the listing has a file %s, which %s", printable(e.name), reason)
		case seen[e.name]:
			return nil, failf(Corrupt, "the listing has the file %s twice", printable(e.name))
		case e.hash != "" && !isHash(e.hash):
			return nil, failf(Corrupt, "the listing gives the file %s the hash %s, which is none", printable(e.name), printable(e.hash))
		case e.size < -1:
			return nil, failf(Corrupt, "the listing gives the file %s %d bytes", printable(e.name), e.size)
		}
		seen[e.name] = true
		l.files = append(l.files, e)
	}
	return l, nil
}

// list asks for the files of a revision.
func (c *Client) list(ctx context.Context, repo Repo, revision string) (*listing, error) {
	parts := append([]string{"api", "models"}, strings.Split(repo.String(), "/")...)
	at := c.address("blobs=true", append(parts, "revision", revision)...)
	var l *listing
	err := c.ask(ctx, http.MethodGet, at, nil, func(a *answer, body io.Reader) error {
		if a.StatusCode != http.StatusOK {
			return c.refusal(a, repo)
		}
		text, err := io.ReadAll(io.LimitReader(body, maxListing+1))
		if err != nil {
			return cut(err)
		}
		if len(text) > maxListing {
			return failf(Corrupt, "the listing of files is longer than %d bytes", maxListing)
		}
		l, err = parseListing(text)
		return err
	})
	if err == nil && hubcache.IsCommit(revision) && l.commit != revision {
		err = failf(Corrupt, "asked for commit %s, the hub lists %s", revision, l.commit)
	}
	return l, err
}

// A file is one that is to be fetched, as both listing and headers have it.
type file struct {
	repo   Repo
	commit string
	name   string
	hash   string // of git or SHA-256: a blob's name
	size   int64
}

// stat asks for what the hub says about a file, and compares it with the listing.
func (c *Client) stat(ctx context.Context, repo Repo, commit string, e entry) (file, error) {
	f := file{repo: repo, commit: commit, name: e.name}
	var known facts
	err := c.ask(ctx, http.MethodHead, c.place(repo, commit, e.name), nil, func(a *answer, _ io.Reader) error {
		if a.StatusCode != http.StatusOK && !a.facts.linked {
			return c.refusal(a, repo)
		}
		known = a.facts
		return nil
	})
	if err != nil {
		return f, inFile(err, repo, e.name)
	}
	f.hash, f.size = known.hash, known.size
	return f, inFile(known.check(commit, e), repo, e.name)
}

// check compares the headers with the listing and refuses what cannot be relied on.
func (f facts) check(commit string, e entry) error {
	switch {
	case f.commit == "":
		return failf(Corrupt, "no X-Repo-Commit in the answer: is the endpoint a hub?")
	case f.commit != commit:
		return failf(Corrupt, "asked for commit %s, the answer is of %s", commit, printable(f.commit))
	case !isHash(f.hash):
		return failf(Corrupt, "the hub gives no hash of the file, but the tag %q", printable(f.hash))
	case f.size < 0:
		return failf(Corrupt, "the hub does not say how long the file is")
	case e.hash != "" && e.hash != f.hash:
		return failf(Corrupt, "the listing says its hash is %s, the answer %s", e.hash, f.hash)
	case e.size >= 0 && e.size != f.size:
		return failf(Corrupt, "the listing says it has %d bytes, the answer %d", e.size, f.size)
	}
	return nil
}
