package hub

import (
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

// Repo is the name of a model on a hub.
type Repo = hubcache.Repo

// FromPage returns ORG/NAME, or ORG/NAME@REVISION, for the address of a model's page on the hub. It
// returns anything else unchanged.
func FromPage(s string) string {
	page, ok := strings.CutPrefix(s, DefaultEndpoint+"/")
	if !ok {
		return s
	}
	page, _, _ = strings.Cut(page, "?")
	name, revision, _ := strings.Cut(strings.Trim(page, "/"), "/tree/")
	if revision != "" {
		name += "@" + revision
	}
	return name
}

// ParseRepo reads ORG/NAME or ORG/NAME@REVISION. Without a revision, revision is empty. A name that
// a hub rejects is an [Error] of kind [BadName].
func ParseRepo(s string) (repo Repo, revision string, err error) {
	repo, revision, err = hubcache.Parse(s)
	if err != nil {
		return Repo{}, "", failf(BadName, "%v", err)
	}
	return repo, revision, nil
}

// checkRevision reports a revision that cannot be a branch, tag or commit.
func checkRevision(s string) error {
	if err := hubcache.CheckRevision(s); err != nil {
		return failf(BadName, "%v", err)
	}
	return nil
}

// isHash reports whether s is a git or a SHA-256 hash, by which blobs are named.
func isHash(s string) bool { return (len(s) == 40 || len(s) == 64) && hubcache.IsHex(s) }
