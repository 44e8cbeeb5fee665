package hubcache

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Repo is the name of a model on a hub. Org is empty for the few that have none.
type Repo struct{ Org, Name string }

// String returns ORG/NAME.
func (r Repo) String() string {
	if r.Org == "" {
		return r.Name
	}
	return r.Org + "/" + r.Name
}

// Folder returns the name of the model's folder in the cache.
func (r Repo) Folder() string {
	if r.Org == "" {
		return "models--" + r.Name
	}
	return "models--" + r.Org + "--" + r.Name
}

// Parse reads ORG/NAME or ORG/NAME@REVISION. Without a revision, revision is empty. It fails on
// names that a hub rejects, and on revisions that are not paths.
func Parse(s string) (repo Repo, revision string, err error) {
	s, revision, at := strings.Cut(s, "@")
	if at {
		if err := CheckRevision(revision); err != nil {
			return Repo{}, "", fmt.Errorf("%s: %w", Printable(s), err)
		}
	}
	org, name, slash := strings.Cut(s, "/")
	if !slash {
		org, name = "", s
	}
	repo = Repo{Org: org, Name: name}
	if slash && !isNamePart(org) || !isNamePart(name) || len(s) > maxRepoName {
		return Repo{}, "", fmt.Errorf("%s is not the name of a model on a hub, which is ORG/NAME", Printable(s))
	}
	return repo, revision, nil
}

// CheckRevision reports a revision that cannot be a branch, tag or commit. Such a one might name
// another path in the cache.
func CheckRevision(s string) error {
	if reason := UnsafePath(s); reason != "" {
		return fmt.Errorf("revision %s %s", Printable(s), reason)
	}
	return nil
}

// maxRepoName is the hub's own limit.
const maxRepoName = 96

// isNamePart reports whether s can be an organisation or a model by the hub's own rule.
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

// IsCommit reports whether s is a full commit hash.
func IsCommit(s string) bool { return len(s) == 40 && IsHex(s) }

// IsHex reports whether s has lower-case hexadecimal digits only.
func IsHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}

// Hostile returns the reason why a file name from a hub can only be meant to do harm, or "".
func Hostile(name string) string {
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

// UnsafePath returns the reason why name cannot be a path below a folder of the cache on every
// system, or "".
func UnsafePath(name string) string {
	const longest, longestPart = 1024, 250
	if reason := Hostile(name); reason != "" {
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

// maxPrinted is how much of a foreign text is shown in a message.
const maxPrinted = 200

// Printable returns s, quoted if it has characters that a terminal should not see, and cut if it is
// long.
func Printable(s string) string {
	cut := ""
	if len(s) > maxPrinted {
		s, cut = s[:maxPrinted], "…"
	}
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q + cut
	}
	return s + cut
}
