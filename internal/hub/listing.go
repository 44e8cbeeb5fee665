package hub

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

// maxListing is the maximum length of a listing in bytes.
const maxListing = 64 << 20

// A listing has the files of one commit.
type listing struct {
	commit string
	files  []entry
}

// An entry is a file of a listing. Some servers leave out hash and size.
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
		return nil, &Error{Kind: Corrupt, Reason: "the listing of files cannot be read", Err: err}
	}
	if !hubcache.IsCommit(wire.SHA) {
		return nil, failf(Corrupt, "the listing names the commit %s, want a hash", printable(wire.SHA))
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
			return nil, failf(Corrupt, "the listing has the hash %[2]s for file %[1]s, want a hash", printable(e.name), printable(e.hash))
		case e.size < -1:
			return nil, failf(Corrupt, "the listing gives the file %s %d bytes", printable(e.name), e.size)
		}
		seen[e.name] = true
		l.files = append(l.files, e)
	}
	return l, nil
}

// list fetches the listing of a revision.
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
		err = failf(Corrupt, "got a listing of commit %s, want %s", l.commit, revision)
	}
	return l, err
}

// A file is a file to fetch. Its fields agree with the listing and the headers.
type file struct {
	repo   Repo
	commit string
	name   string
	hash   string // of git or SHA-256: a blob's name
	size   int64
}

// stat requests the headers of a file and checks them against the listing.
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

// check compares the headers with the listing.
func (f facts) check(commit string, e entry) error {
	switch {
	case f.commit == "":
		return failf(Corrupt, "no X-Repo-Commit in the answer: is the endpoint a hub?")
	case f.commit != commit:
		return failf(Corrupt, "got an answer for commit %s, want %s", printable(f.commit), commit)
	case !isHash(f.hash):
		return failf(Corrupt, "got the tag %q, want a hash of the file", printable(f.hash))
	case f.size < 0:
		return failf(Corrupt, "the hub does not give the size of the file")
	case e.hash != "" && e.hash != f.hash:
		return failf(Corrupt, "got the hash %s, the listing has %s", f.hash, e.hash)
	case e.size >= 0 && e.size != f.size:
		return failf(Corrupt, "got %d bytes, the listing has %d", f.size, e.size)
	}
	return nil
}
