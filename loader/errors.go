package loader

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An Error says which file and which tensor of a checkpoint is at fault, and why. Its
// text begins with "loader:". File and Tensor are empty where they do not apply.
type Error struct {
	File   string // path, or name of a file in memory
	Tensor string
	Reason string
	Err    error // the cause, such as an *fs.PathError; may be nil
}

// Error is "loader: FILE: tensor NAME: REASON". Hostile names are quoted and cut.
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

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrChanged is behind the error of a file that was cut, overwritten or replaced while it was in
// use: nothing that is read of it any more belongs to what was read before.
var ErrChanged = errors.New("a model cannot change while it is used, start again with the new files")

func failf(file, tensor, format string, args ...any) *Error {
	return &Error{File: file, Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// maxPrinted is how much of a name from a file is shown in a message.
const maxPrinted = 200

// printable is s as it is, or quoted where it holds what a terminal should not see,
// and cut where it is long.
func printable(s string) string {
	cut := ""
	if len(s) > maxPrinted {
		s, cut = s[:maxPrinted], "…"
	}
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q + cut
	}
	return s + cut
}

// quoted is s between quotes, cut where it is long.
func quoted(s string) string {
	if len(s) > maxPrinted {
		return strconv.Quote(s[:maxPrinted]) + "…"
	}
	return strconv.Quote(s)
}
