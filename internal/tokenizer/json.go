package tokenizer

import (
	"bytes"
	"fmt"

	"github.com/heftai/heft/internal/jsonscan"
)

// scanner walks JSON text without building values. It is strict where it decodes, and only
// balances brackets where it skips: the skipped text is decoded later.
type scanner struct{ jsonscan.Scanner }

// newScanner reads b, which begins at byte base of the file.
func newScanner(b []byte, base int) *scanner {
	return &scanner{jsonscan.Scanner{Text: b, Base: base, LooseArrays: true, Explain: explain}}
}

// syntaxError is a fault in the file with its place.
type syntaxError struct {
	offset int
	msg    string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.offset, e.msg) }

func (s *scanner) fail(format string, args ...any) error {
	return &syntaxError{s.Base + s.Pos, fmt.Sprintf(format, args...)}
}

// explain returns the error for a fault. The place of a wrong escape is its backslash, or the first
// byte behind it if it is half a surrogate pair.
func explain(f jsonscan.Fault) error {
	e := &syntaxError{offset: f.Offset}
	if f.Escape >= 0 {
		e.offset = f.Escape
	}
	switch f.Kind {
	case jsonscan.Unterminated:
		e.msg = "the file ends inside a string"
	case jsonscan.UnclosedValue:
		e.msg = "the file ends inside a value"
	case jsonscan.Control:
		e.msg = "a raw control character in a string"
	case jsonscan.UnknownEscape, jsonscan.HexDigits:
		e.msg = "a broken escape in a string"
	case jsonscan.PairDigits, jsonscan.LoneHigh, jsonscan.LoneLow:
		e.offset += len(`\uD800`)
		e.msg = "half a surrogate pair in a string"
	case jsonscan.ExpectedValue:
		e.msg = "a value should be here"
	default:
		want := f.Want
		if f.Kind == jsonscan.TrailingComma {
			want = '"' // arrays are loose: this is an object, and a key should follow
		}
		e.msg = fmt.Sprintf("found %q where %q should be", f.Got, want)
		if f.AtEnd {
			e.msg = fmt.Sprintf("the file ends where %q should be", want)
		}
	}
	return e
}

// number returns the text of a number.
func (s *scanner) number() (string, error) {
	s.Peek()
	start := s.Pos
	for s.Pos < len(s.Text) && bytes.IndexByte([]byte("+-.eE0123456789"), s.Text[s.Pos]) >= 0 {
		s.Pos++
	}
	if start == s.Pos {
		return "", s.fail("a number should be here")
	}
	return string(s.Text[start:s.Pos]), nil
}

// id decodes a token id: a whole number from 0 that fits an int32.
func (s *scanner) id() (int32, error) {
	s.Peek()
	start, n := s.Pos, int64(0)
	for s.Pos < len(s.Text) && s.Text[s.Pos] >= '0' && s.Text[s.Pos] <= '9' && n <= maxID {
		n = n*10 + int64(s.Text[s.Pos]-'0')
		s.Pos++
	}
	if start == s.Pos || n > maxID {
		s.Pos = start
		return 0, s.fail("a token id should be here: a whole number up to %d, as ids are signed 32-bit numbers", maxID)
	}
	return int32(n), nil
}
