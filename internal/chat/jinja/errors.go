package jinja

import (
	"errors"
	"fmt"
)

// Kind says what went wrong, in the classes a caller may want to tell apart.
type Kind string

const (
	// KindSyntax is a template that does not parse or compile.
	KindSyntax Kind = "syntax"
	// KindRaise is the template's own raise_exception: Message is its text.
	KindRaise Kind = "raise_exception"
	// KindUndefined is the use of a name, key or attribute that is not there.
	KindUndefined Kind = "undefined"
	// KindSecurity is something the sandbox forbids, such as changing a list.
	KindSecurity Kind = "security"
	// KindRuntime is a fault Jinja itself reports, such as an unknown filter.
	KindRuntime Kind = "runtime"
	// KindPython is what Python reports as TypeError, ValueError and the like.
	KindPython Kind = "python"
	// KindLimit is a template that went beyond its [Limits].
	KindLimit Kind = "limit"
)

// Error is a failure to parse or to render. Line counts from 1; it is 0 where no
// line of the template is to blame. Message is free of position and prefix.
type Error struct {
	Kind    Kind
	Line    int
	Message string
}

// Error returns "jinja: line N: message".
func (e *Error) Error() string {
	if e.Line == 0 {
		return "jinja: " + e.Message
	}
	return fmt.Sprintf("jinja: line %d: %s", e.Line, e.Message)
}

func failf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// typeErrorf returns a failure that Python would raise as TypeError or ValueError.
func typeErrorf(format string, args ...any) error { return failf(KindPython, format, args...) }

// atLine gives err the line where it happened, unless it knows a deeper one.
func atLine(err error, line int) error {
	var e *Error
	if errors.As(err, &e) && e.Line == 0 {
		located := *e
		located.Line = line
		return &located
	}
	return err
}
