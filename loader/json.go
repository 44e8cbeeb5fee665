package loader

import (
	"fmt"
	"math"

	"github.com/heftai/heft/internal/jsonscan"
)

// maxDepth is the maximum nesting depth of a header.
const maxDepth = 127

// A scanner scans strict JSON (RFC 8259). Its caller checks first that the text is UTF-8.
type scanner struct{ jsonscan.Scanner }

// newScanner returns a scanner of text. With anyNumber, numbers may exceed the range of a
// float64, as in Python.
func newScanner(text []byte, anyNumber bool) scanner {
	return scanner{jsonscan.Scanner{Text: text, MaxDepth: maxDepth, AnyRange: anyNumber, Explain: explain}}
}

// A syntaxError reports a syntax error at a byte of the JSON text.
type syntaxError struct {
	offset int
	what   string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.what, e.offset) }

func (s *scanner) fail(what string) error { return &syntaxError{s.Pos, what} }

// explain returns the error for a fault.
func explain(f jsonscan.Fault) error {
	what := faults[f.Kind]
	switch f.Kind {
	case jsonscan.Expected:
		what = "expected " + f.What
	case jsonscan.ExpectedComma:
		what = "expected ',' or '" + string(rune(f.Want)) + "'"
	}
	return &syntaxError{f.Offset, what}
}

var faults = map[jsonscan.Kind]string{
	jsonscan.ExpectedKey:    "expected a key in quotes",
	jsonscan.ExpectedValue:  "expected a value",
	jsonscan.TrailingComma:  "trailing comma",
	jsonscan.TooDeep:        "nested too deeply",
	jsonscan.Unterminated:   "a string without an end",
	jsonscan.Control:        "control character in a string",
	jsonscan.UnknownEscape:  "unknown escape",
	jsonscan.HexDigits:      "expected four hexadecimal digits",
	jsonscan.PairDigits:     "expected four hexadecimal digits",
	jsonscan.LoneHigh:       "first half of a surrogate pair alone",
	jsonscan.LoneLow:        "second half of a surrogate pair alone",
	jsonscan.LeadingZero:    "number with a leading zero",
	jsonscan.FractionDigits: "number without digits after the point",
	jsonscan.ExponentDigits: "number without digits in its exponent",
	jsonscan.NumberRange:    "number out of range",
}

// end returns an error unless only white space is left.
func (s *scanner) end() error {
	if !s.AtEnd() {
		return s.fail("trailing characters")
	}
	return nil
}

// natural reads a plain integer from 0 to 2^64-1, without sign, fraction or exponent.
func (s *scanner) natural() (uint64, error) {
	c := s.Peek()
	begin := s.Pos
	var n uint64
	for ; s.Pos < len(s.Text); s.Pos++ {
		c = s.Text[s.Pos]
		if c < '0' || c > '9' {
			break
		}
		d := uint64(c - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, s.fail("integer of more than 64 bits")
		}
		n = n*10 + d
	}
	switch {
	case s.Pos == begin:
		return 0, s.fail("expected an integer that is not negative")
	case s.Text[begin] == '0' && s.Pos > begin+1:
		return 0, s.fail("integer with a leading zero")
	case s.Pos < len(s.Text) && (c == '.' || c == 'e' || c == 'E'):
		return 0, s.fail("expected an integer")
	}
	return n, nil
}
