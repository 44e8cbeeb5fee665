package loader

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/hubcache"
)

// An Error reports a failure caused by a file or tensor of a checkpoint, with the reason. Its
// text begins with "loader:". File and Tensor are "" if they do not apply.
type Error struct {
	File   string // path, or name of a file in memory
	Tensor string
	Reason string
	Err    error // the cause, such as an *fs.PathError; may be nil
}

// Error returns "loader: FILE: tensor NAME: REASON". Unprintable names are quoted and long names
// truncated.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("loader")
	if e.File != "" {
		b.WriteString(": ")
		b.WriteString(printable(e.File))
	}
	if e.Tensor != "" {
		b.WriteString(": tensor ")
		b.WriteString(printable(e.Tensor))
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

// ErrChanged reports that a file was truncated, overwritten or replaced while in use. Bytes read
// from now on may not match bytes read before. Errors of such files wrap it.
var ErrChanged = errors.New("a model cannot change while it is used, start again with the new files")

func failf(file, tensor, format string, args ...any) *Error {
	return &Error{File: file, Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// maxPrinted is the maximum length of a name in a message.
const maxPrinted = 200

// printable returns s, quoted if it has characters that are unsafe for a terminal, and truncated
// if it is long.
func printable(s string) string { return hubcache.Printable(s) }

// quoted returns s in quotes, truncated if it is long.
func quoted(s string) string {
	if len(s) > maxPrinted {
		return strconv.Quote(s[:maxPrinted]) + "…"
	}
	return strconv.Quote(s)
}
