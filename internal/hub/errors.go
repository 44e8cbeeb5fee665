package hub

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

// Kind classifies an [Error] for callers.
type Kind uint8

// The kinds of errors.
const (
	Failed      Kind = iota // none of the others
	BadName                 // a repository, revision, pattern or file has an invalid name
	Offline                 // the network is needed and the client is offline
	NotCached               // the cache does not hold all of the snapshot
	NotFound                // the hub has no such repository, revision or file
	Refused                 // the hub wants a token, or another one
	Gated                   // the hub wants the user to ask for access first
	NoWeights               // the repository has nothing that can be served
	Throttled               // the hub asks to wait longer than the client does
	Unreachable             // the hub did not answer, or stopped in the middle
	Corrupt                 // an answer of the server is inconsistent
	Disk                    // the cache cannot be written or read
	Busy                    // another process is pulling the model
)

// An Error says what went wrong with which file of which repository. Its text begins
// with "hub:".
type Error struct {
	Kind   Kind
	Repo   string // ORG/NAME
	File   string // empty where it is not about one
	Reason string
	Err    error // the cause; may be nil
}

// Error returns "hub: ORG/NAME: FILE: REASON: CAUSE".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("hub")
	for _, part := range []string{e.Repo, e.File} {
		if part != "" {
			b.WriteString(": ")
			b.WriteString(printable(part))
		}
	}
	b.WriteString(": ")
	b.WriteString(e.Reason)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an [Error] of that kind.
func Is(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

func failf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: fmt.Sprintf(format, args...)}
}

// inFile adds repository and file to an error that lacks them.
func inFile(err error, repo Repo, file string) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Repo: repo.String(), File: file, Reason: "stopped", Err: err}
	}
	named := *e
	if named.Repo == "" {
		named.Repo = repo.String()
	}
	if named.File == "" {
		named.File = file
	}
	return &named
}

// plain returns the cause of a transport's error without the address, because its query may be a
// signature that grants access.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func printable(s string) string { return hubcache.Printable(s) }
