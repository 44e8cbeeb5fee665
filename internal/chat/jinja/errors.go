package jinja

import (
	"errors"
	"fmt"
)

// Kind classifies errors for callers.
type Kind string

const (
	// KindSyntax means that the template does not parse or compile.
	KindSyntax Kind = "syntax"
	// KindRaise means that the template called raise_exception. Message is its argument.
	KindRaise Kind = "raise_exception"
	// KindUndefined means that a name, key or attribute does not exist.
	KindUndefined Kind = "undefined"
	// KindSecurity means that the sandbox forbids an operation, such as changing a list.
	KindSecurity Kind = "security"
	// KindRuntime is an error that Jinja itself reports, such as an unknown filter.
	KindRuntime Kind = "runtime"
	// KindPython is an error that Python reports as TypeError, ValueError and the like.
	KindPython Kind = "python"
	// KindLimit means that the template exceeded its [Limits].
	KindLimit Kind = "limit"
)

// Error is a failure to parse or to render. Line counts from 1. It is 0 if the error belongs to no
// line. Message has neither position nor prefix.
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

// atLine adds the line to err, unless err has one already.
func atLine(err error, line int) error {
	var e *Error
	if errors.As(err, &e) && e.Line == 0 {
		located := *e
		located.Line = line
		return &located
	}
	return err
}
