package tokenizer

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks JSON text without building values. It is strict where it decodes
// and only balances brackets where it skips; what is skipped is decoded later.
type scanner struct {
	b       []byte
	at      int
	base    int // offset of b in the file, for messages
	scratch []byte
}

// syntaxError is a fault in the file with its place.
type syntaxError struct {
	offset int
	msg    string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.offset, e.msg) }

func (s *scanner) fail(format string, args ...any) error {
	return &syntaxError{s.base + s.at, fmt.Sprintf(format, args...)}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.b) {
		switch c := s.b[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c {
		if s.at >= len(s.b) {
			return s.fail("the file ends where %q should be", c)
		}
		return s.fail("found %q where %q should be", got, c)
	}
	s.at++
	return nil
}

// object calls member for each key; member must consume the value. key is valid
// only until the next call on s.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.at++
		return nil
	}
	for {
		s.peek()
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.at++
			continue
		}
		return s.expect('}')
	}
}

// array calls element for each element; element must consume it.
func (s *scanner) array(element func(i int) error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.at++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if s.peek() == ',' {
			s.at++
			continue
		}
		return s.expect(']')
	}
}

// str decodes a string. The result points into the input, or into scratch memory
// that the next call overwrites.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.at
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.at = i + 1
			return s.b[start:i], nil
		case c == '\\':
			return s.escaped(start, i)
		case c < 0x20:
			s.at = i
			return nil, s.fail("a raw control character in a string")
		}
	}
	s.at = len(s.b)
	return nil, s.fail("the file ends inside a string")
}

// escaped decodes a string that has a backslash at i.
func (s *scanner) escaped(start, i int) ([]byte, error) {
	out := append(s.scratch[:0], s.b[start:i]...)
	for i < len(s.b) {
		c := s.b[i]
		switch {
		case c == '"':
			s.at, s.scratch = i+1, out
			return out, nil
		case c < 0x20:
			s.at = i
			return nil, s.fail("a raw control character in a string")
		case c != '\\':
			out = append(out, c)
			i++
		default:
			s.at = i
			var err error
			if out, err = s.escape(out); err != nil {
				return nil, err
			}
			i = s.at
		}
	}
	s.at = len(s.b)
	return nil, s.fail("the file ends inside a string")
}

// escape appends the character of the escape sequence at s.at and steps over it.
func (s *scanner) escape(out []byte) ([]byte, error) {
	if s.at+1 >= len(s.b) {
		return nil, s.fail("the file ends inside a string")
	}
	c := s.b[s.at+1]
	const plain, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if k := bytes.IndexByte([]byte(plain), c); k >= 0 {
		s.at += 2
		return append(out, means[k]), nil
	}
	r, ok := s.hex(s.at)
	if !ok {
		return nil, s.fail("a broken escape in a string")
	}
	s.at += 6
	if utf16.IsSurrogate(r) {
		low, ok := s.hex(s.at)
		pair := utf16.DecodeRune(r, low)
		if !ok || pair == utf8.RuneError {
			return nil, s.fail("half a surrogate pair in a string")
		}
		s.at += 6
		r = pair
	}
	return utf8.AppendRune(out, r), nil
}

// hex reads \uXXXX at position at.
func (s *scanner) hex(at int) (rune, bool) {
	if at+6 > len(s.b) || s.b[at] != '\\' || s.b[at+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(s.b[at+2:at+6]), 16, 16)
	return rune(v), err == nil
}

// number returns the text of a number.
func (s *scanner) number() (string, error) {
	s.peek()
	start := s.at
	for s.at < len(s.b) && bytes.IndexByte([]byte("+-.eE0123456789"), s.b[s.at]) >= 0 {
		s.at++
	}
	if start == s.at {
		return "", s.fail("a number should be here")
	}
	return string(s.b[start:s.at]), nil
}

// id decodes a token id: a whole number from 0 that fits an int32.
func (s *scanner) id() (int32, error) {
	s.peek()
	start, n := s.at, int64(0)
	for s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' && n <= maxID {
		n = n*10 + int64(s.b[s.at]-'0')
		s.at++
	}
	if start == s.at || n > maxID {
		s.at = start
		return 0, s.fail("a token id (a whole number up to %d) should be here", maxID)
	}
	return int32(n), nil
}

// skip steps over one value, balancing brackets without checking what is inside,
// and returns its text.
func (s *scanner) skip() ([]byte, error) {
	s.peek()
	start, depth := s.at, 0
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case '"':
			if err := s.skipString(); err != nil {
				return nil, err
			}
			if depth == 0 {
				return s.b[start:s.at], nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.scalar(start)
			}
			if depth--; depth == 0 {
				s.at++
				return s.b[start:s.at], nil
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return s.scalar(start)
			}
		}
		s.at++
	}
	if depth > 0 {
		return nil, s.fail("the file ends inside a value")
	}
	return s.scalar(start)
}

func (s *scanner) scalar(start int) ([]byte, error) {
	if start == s.at {
		return nil, s.fail("a value should be here")
	}
	return s.b[start:s.at], nil
}

// skipString steps over the string at s.at.
func (s *scanner) skipString() error {
	for i := s.at + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '"':
			s.at = i + 1
			return nil
		case '\\':
			i++
		}
	}
	s.at = len(s.b)
	return s.fail("the file ends inside a string")
}
