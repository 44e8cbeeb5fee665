package jsonscan

import (
	"errors"
	"strconv"
)

// A Scanner reads a JSON text. Its caller asks for one value after the other, so the Scanner
// keeps nothing. Text and Explain must be set. After an error, Pos has no meaning.
//
// A Scanner is for one goroutine.
type Scanner struct {
	Text []byte
	Pos  int // of the next byte

	Base     int  // offset of Text in the file, added to the places of faults
	MaxDepth int  // how many objects and arrays may be in each other; 0 is any number
	AnyRange bool // Skip takes numbers that no float64 holds
	// LooseArrays makes Array call its function after every comma, even if the array ends
	// there. The function then fails in its own words. Otherwise that is a TrailingComma.
	LooseArrays bool
	// Explain makes the error for a fault. It must not return nil.
	Explain func(Fault) error

	depth   int
	scratch []byte
}

// fault makes an error about the byte at Pos.
func (s *Scanner) fault(kind Kind, want byte, what string) error {
	f := Fault{Kind: kind, Offset: s.Base + s.Pos, Escape: -1, What: what, Want: want, AtEnd: s.Pos >= len(s.Text)}
	if !f.AtEnd {
		f.Got = s.Text[s.Pos]
	}
	return s.Explain(f)
}

// Peek skips white space and returns the next byte, which it does not consume. It returns 0 at
// the end.
func (s *Scanner) Peek() byte {
	for ; s.Pos < len(s.Text); s.Pos++ {
		switch c := s.Text[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// AtEnd reports whether only white space is left, which it skips.
func (s *Scanner) AtEnd() bool {
	s.Peek()
	return s.Pos >= len(s.Text)
}

// Expect consumes the byte c, which must not be 0. what names it for the error.
func (s *Scanner) Expect(c byte, what string) error {
	if s.Peek() != c {
		return s.fault(Expected, c, what)
	}
	s.Pos++
	return nil
}

// Object reads an object. It calls member at the start of each value; member must consume the
// value. The key is valid until the next call on s. what names the object for the error.
func (s *Scanner) Object(what string, member func(key []byte) error) error {
	if err := s.open('{', what); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.next('}', first, false)
		if err != nil || !more {
			return err
		}
		if s.Peek() != '"' {
			return s.fault(ExpectedKey, '"', "")
		}
		key, err := s.String()
		if err != nil {
			return err
		}
		if err := s.Expect(':', "':'"); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
}

// Array reads an array. It calls element at the start of each value; element must consume the
// value. what names the array for the error.
func (s *Scanner) Array(what string, element func(i int) error) error {
	if err := s.open('[', what); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := s.next(']', i == 0, s.LooseArrays)
		if err != nil || !more {
			return err
		}
		if err := element(i); err != nil {
			return err
		}
	}
}

func (s *Scanner) open(bracket byte, what string) error {
	if err := s.Expect(bracket, what); err != nil {
		return err
	}
	if s.depth++; s.MaxDepth > 0 && s.depth > s.MaxDepth {
		return s.fault(TooDeep, 0, "")
	}
	return nil
}

// next steps to the next member of a container, or past its closing bracket.
func (s *Scanner) next(closing byte, first, loose bool) (more bool, err error) {
	c := s.Peek()
	if c == closing {
		s.Pos++
		s.depth--
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, s.fault(ExpectedComma, closing, "")
	}
	s.Pos++
	if !loose && s.Peek() == closing {
		return false, s.fault(TrailingComma, closing, "")
	}
	return true, nil
}

// String decodes a string. The result is part of Text, or memory that the next call of s
// overwrites if the string has an escape.
func (s *Scanner) String() ([]byte, error) {
	if err := s.Expect('"', "a string"); err != nil {
		return nil, err
	}
	start := s.Pos
	for i := start; i < len(s.Text); i++ {
		switch c := s.Text[i]; {
		case c == '"':
			s.Pos = i + 1
			return s.Text[start:i], nil
		case c == '\\':
			return s.escaped(start, i)
		case c < 0x20:
			s.Pos = i
			return nil, s.fault(Control, 0, "")
		}
	}
	s.Pos = len(s.Text)
	return nil, s.fault(Unterminated, 0, "")
}

// escaped decodes a string that begins at start and has its first backslash at i.
func (s *Scanner) escaped(start, i int) ([]byte, error) {
	out := append(s.scratch[:0], s.Text[start:i]...)
	for i < len(s.Text) {
		c := s.Text[i]
		switch {
		case c == '"':
			s.Pos, s.scratch = i+1, out
			return out, nil
		case c < 0x20:
			s.Pos = i
			return nil, s.fault(Control, 0, "")
		case c != '\\':
			out = append(out, c)
			i++
		default:
			r, end, kind := Unescape(s.Text, i)
			if kind != None {
				return nil, s.Explain(Fault{Kind: kind, Offset: s.Base + end, Escape: s.Base + i})
			}
			out = appendRune(out, r)
			i = end
		}
	}
	s.Pos = len(s.Text)
	return nil, s.fault(Unterminated, 0, "")
}

// Null consumes null if that is the next value. It fails if the value only begins like it.
func (s *Scanner) Null() (bool, error) {
	if s.Peek() != 'n' {
		return false, nil
	}
	return true, s.word("null")
}

func (s *Scanner) word(w string) error {
	if len(s.Text)-s.Pos < len(w) || string(s.Text[s.Pos:s.Pos+len(w)]) != w {
		return s.fault(ExpectedValue, 0, "")
	}
	s.Pos += len(w)
	return nil
}

// Skip steps over a value and checks all of it. It recurses: MaxDepth should be set.
func (s *Scanner) Skip() error {
	switch s.Peek() {
	case '{':
		return s.Object("an object", func([]byte) error { return s.Skip() })
	case '[':
		return s.Array("an array", func(int) error { return s.Skip() })
	case '"':
		_, err := s.String()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	begin := s.Pos
	end, integer, kind := Number(s.Text, begin)
	s.Pos = end
	if kind != None {
		return s.fault(kind, 0, "")
	}
	if (!integer || end-begin > 300) && !s.AnyRange { // shorter integers are in range
		if _, err := strconv.ParseFloat(string(s.Text[begin:end]), 64); errors.Is(err, strconv.ErrRange) {
			return s.fault(NumberRange, 0, "")
		}
	}
	return nil
}

// Balanced steps over a value without checking what is inside: it balances brackets only. It
// returns the value's text, for a caller that decodes it later.
func (s *Scanner) Balanced() ([]byte, error) {
	s.Peek()
	begin := s.Pos
	end, kind := ValueEnd(s.Text, begin)
	s.Pos = end
	switch {
	case kind != None:
		return nil, s.fault(kind, 0, "")
	case end == begin:
		return nil, s.fault(ExpectedValue, 0, "")
	}
	return s.Text[begin:end], nil
}
