package hub

import (
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// A Repo is the name of a model on a hub. Org is empty for the few that have none.
type Repo struct{ Org, Name string }

// String is ORG/NAME.
func (r Repo) String() string {
	if r.Org == "" {
		return r.Name
	}
	return r.Org + "/" + r.Name
}

// folder is the repository's folder in the cache.
func (r Repo) folder() string {
	if r.Org == "" {
		return "models--" + r.Name
	}
	return "models--" + r.Org + "--" + r.Name
}

// FromPage makes ORG/NAME, or ORG/NAME@REVISION, of the address of a model's page on the hub,
// which people copy. Anything else stays as it is.
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

// ParseRepo reads ORG/NAME or ORG/NAME@REVISION. Without a revision, revision is empty.
// What a hub would not take as a name is an [Error] of kind [BadName].
func ParseRepo(s string) (repo Repo, revision string, err error) {
	s, revision, at := strings.Cut(s, "@")
	if at {
		if err := checkRevision(revision); err != nil {
			return Repo{}, "", inFile(err, Repo{Name: s}, "")
		}
	}
	org, name, slash := strings.Cut(s, "/")
	if !slash {
		org, name = "", s
	}
	repo = Repo{Org: org, Name: name}
	if slash && !isNamePart(org) || !isNamePart(name) || len(s) > maxRepoName {
		return Repo{}, "", failf(BadName, "%s is not the name of a model on a hub, which is ORG/NAME", printable(s))
	}
	return repo, revision, nil
}

// maxRepoName is the hub's own limit.
const maxRepoName = 96

// isNamePart reports whether s can be an organisation or a model: the hub's own rule.
func isNamePart(s string) bool {
	if s == "" || strings.ContainsAny(s[:1]+s[len(s)-1:], ".-") || strings.HasSuffix(s, ".git") {
		return false
	}
	if strings.Contains(s, "--") || strings.Contains(s, "..") {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("._-", r) }) < 0
}

func isAlphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// checkRevision refuses a revision that cannot be a branch, tag or commit, and so none
// that would be another path in the cache.
func checkRevision(s string) error {
	if reason := unsafePath(s); reason != "" {
		return failf(BadName, "revision %s %s", printable(s), reason)
	}
	return nil
}

// isCommit reports whether s is a full commit hash.
func isCommit(s string) bool { return len(s) == 40 && isHex(s) }

// isHash reports whether s is a git or a SHA-256 hash, by which blobs are named.
func isHash(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }

func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

// hostile says why a file name can only be meant to do harm; empty where it need not be.
func hostile(name string) string {
	switch {
	case name == "":
		return "is empty"
	case strings.ContainsAny(name, "\\\x00"):
		return "has a backslash or a NUL in it"
	case strings.HasPrefix(name, "/"):
		return "is an absolute path"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || part == "" {
			return "leads out of the folder"
		}
	}
	return ""
}

// unsafePath says why name cannot be a path below a folder of the cache on every system;
// empty where it can.
func unsafePath(name string) string {
	const longest, longestPart = 1024, 250
	if reason := hostile(name); reason != "" {
		return reason
	}
	switch {
	case len(name) > longest:
		return "is too long"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`:*?"<>|`, r) }) >= 0:
		return "has a character that file names do not have everywhere"
	case !filepath.IsLocal(filepath.FromSlash(name)):
		return "is not a path below a folder"
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > longestPart {
			return "is too long"
		}
		if strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return "has a part that ends in a dot or a space"
		}
	}
	return ""
}
