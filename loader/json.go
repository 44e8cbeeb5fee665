package loader

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDepth is how many containers may stand in each other in a header.
const maxDepth = 127

// A scanner reads strict JSON (RFC 8259): valid UTF-8 was checked before. Callers drive
// it token by token, so nothing is kept of what they do not ask for. After an error its
// position is where the error is.
type scanner struct {
	data  []byte
	pos   int
	depth int
	// anyNumber lets numbers pass that no float64 holds, as Python does.
	anyNumber bool
}

// A syntaxError says what is wrong at a byte of the JSON text.
type syntaxError struct {
	offset int
	what   string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.what, e.offset) }

func (s *scanner) fail(what string) error { return &syntaxError{s.pos, what} }

// peek is the next byte that is not white space, which is not consumed; 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// end fails unless only white space is left.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.fail("trailing characters")
	}
	return nil
}

// expect consumes the byte c.
func (s *scanner) expect(c byte, what string) error {
	if s.peek() != c || s.pos >= len(s.data) {
		return s.fail("expected " + what)
	}
	s.pos++
	return nil
}

// object reads an object, calling member at the start of each value, which member has
// to consume. The key's bytes are valid during the call only.
func (s *scanner) object(what string, member func(key []byte) error) error {
	if err := s.open('{', what); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.next('}', first)
		if err != nil || !more {
			return err
		}
		if s.peek() != '"' {
			return s.fail("expected a key in quotes")
		}
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := s.expect(':', "':'"); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
	}
}

// array reads an array, calling element at the start of each value, which element has
// to consume.
func (s *scanner) array(what string, element func(i int) error) error {
	if err := s.open('[', what); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := s.next(']', i == 0)
		if err != nil || !more {
			return err
		}
		if err := element(i); err != nil {
			return err
		}
	}
}

func (s *scanner) open(bracket byte, what string) error {
	if err := s.expect(bracket, what); err != nil {
		return err
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("nested too deeply")
	}
	return nil
}

// next steps to the next member of a container, or past its closing bracket.
func (s *scanner) next(closing byte, first bool) (more bool, err error) {
	c := s.peek()
	if c == closing && s.pos < len(s.data) {
		s.pos++
		s.depth--
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' {
		return false, s.fail("expected ',' or '" + string(closing) + "'")
	}
	s.pos++
	if s.peek() == closing {
		return false, s.fail("trailing comma")
	}
	return true, nil
}

// null consumes null if it stands next.
func (s *scanner) null() (bool, error) {
	if s.peek() != 'n' {
		return false, nil
	}
	return true, s.word("null")
}

func (s *scanner) word(w string) error {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return s.fail("expected a value")
	}
	s.pos += len(w)
	return nil
}

// string reads a string. The bytes are valid until the next call where there was an
// escape in it, and alias the text where there was none.
func (s *scanner) string() ([]byte, error) {
	if err := s.expect('"', "a string"); err != nil {
		return nil, err
	}
	begin := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[begin : s.pos-1], nil
		case c == '\\':
			return s.escaped(begin)
		case c < 0x20:
			return nil, s.fail("control character in a string")
		}
	}
	return nil, s.fail("a string without an end")
}

// escaped goes on with a string that began at begin, from its first escape.
func (s *scanner) escaped(begin int) ([]byte, error) {
	text := append([]byte(nil), s.data[begin:s.pos]...)
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			s.pos++
			return text, nil
		case c < 0x20:
			return nil, s.fail("control character in a string")
		case c != '\\':
			text = append(text, c)
			s.pos++
		default:
			s.pos++
			var err error
			if text, err = s.escape(text); err != nil {
				return nil, err
			}
		}
	}
	return nil, s.fail("a string without an end")
}

// escape appends what the escape after a backslash stands for.
func (s *scanner) escape(text []byte) ([]byte, error) {
	if s.pos >= len(s.data) {
		return nil, s.fail("a string without an end")
	}
	c := s.data[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/':
		return append(text, c), nil
	case 'b':
		return append(text, '\b'), nil
	case 'f':
		return append(text, '\f'), nil
	case 'n':
		return append(text, '\n'), nil
	case 'r':
		return append(text, '\r'), nil
	case 't':
		return append(text, '\t'), nil
	case 'u':
	default:
		return nil, s.fail("unknown escape")
	}
	r, err := s.hex()
	if err != nil {
		return nil, err
	}
	switch {
	case r >= 0xdc00 && r < 0xe000:
		return nil, s.fail("second half of a surrogate pair alone")
	case r >= 0xd800 && r < 0xdc00:
		if len(s.data)-s.pos < 6 || s.data[s.pos] != '\\' || s.data[s.pos+1] != 'u' {
			return nil, s.fail("first half of a surrogate pair alone")
		}
		s.pos += 2
		low, err := s.hex()
		if err != nil {
			return nil, err
		}
		if low < 0xdc00 || low >= 0xe000 {
			return nil, s.fail("first half of a surrogate pair alone")
		}
		r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
	}
	return utf8.AppendRune(text, r), nil
}

func (s *scanner) hex() (rune, error) {
	if len(s.data)-s.pos < 4 {
		return 0, s.fail("expected four hexadecimal digits")
	}
	var r rune
	for range 4 {
		c := s.data[s.pos]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s.fail("expected four hexadecimal digits")
		}
		r = r<<4 | rune(c)
		s.pos++
	}
	return r, nil
}

// natural reads a plain integer from 0 to 2^64-1, without sign, fraction or exponent.
func (s *scanner) natural() (uint64, error) {
	c := s.peek()
	begin := s.pos
	var n uint64
	for ; s.pos < len(s.data); s.pos++ {
		c = s.data[s.pos]
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
	case s.pos == begin:
		return 0, s.fail("expected an integer that is not negative")
	case s.data[begin] == '0' && s.pos > begin+1:
		return 0, s.fail("integer with a leading zero")
	case s.pos < len(s.data) && (c == '.' || c == 'e' || c == 'E'):
		return 0, s.fail("expected an integer")
	}
	return n, nil
}

// skip reads any value, strictly, and forgets it.
func (s *scanner) skip() error {
	switch s.peek() {
	case '{':
		return s.object("an object", func([]byte) error { return s.skip() })
	case '[':
		return s.array("an array", func(int) error { return s.skip() })
	case '"':
		_, err := s.string()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// number reads any JSON number; one that no float64 holds is an error, as in the
// reference.
func (s *scanner) number() error {
	begin := s.pos
	if s.at('-') {
		s.pos++
	}
	leading := s.pos
	whole := s.digits()
	if whole == 0 {
		return s.fail("expected a value")
	}
	if whole > 1 && s.data[leading] == '0' {
		return s.fail("number with a leading zero")
	}
	if s.at('.') {
		s.pos++
		if s.digits() == 0 {
			return s.fail("number without digits after the point")
		}
	}
	exponent := s.at('e') || s.at('E')
	if exponent {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if s.digits() == 0 {
			return s.fail("number without digits in its exponent")
		}
	}
	if (exponent || whole > 300) && !s.anyNumber {
		_, err := strconv.ParseFloat(string(s.data[begin:s.pos]), 64)
		if errors.Is(err, strconv.ErrRange) {
			return s.fail("number out of range")
		}
	}
	return nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

func (s *scanner) digits() int {
	begin := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - begin
}
