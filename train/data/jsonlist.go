package data

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// isList reports whether a file is a single JSON list, like Alpaca's and ShareGPT's files, rather
// than lines.
func isList(r io.Reader) bool {
	in := bufio.NewReader(r)
	for {
		switch c, err := in.ReadByte(); {
		case err != nil:
			return false
		case c == 0xef || c == 0xbb || c == 0xbf: // a byte order mark
		case !isSpace(c):
			return c == '['
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// A listScanner finds the elements of a JSON list. It checks only brackets and quotes; parsing a
// record checks the rest.
type listScanner struct {
	offset, begin int64
	line, first   int // of the current byte, and of the element's first byte
	depth         int
	quoted, after bool // inside a string, and after a backslash there
	within, ended bool // inside an element, and after the end of the list
}

// listItems calls visit for each element of a JSON list, with its first line, its offset and its
// size in bytes.
func listItems(r io.Reader, visit func(number int, offset int64, size int)) error {
	in := bufio.NewReaderSize(r, 1<<16)
	s := listScanner{line: 1}
	for ; ; s.offset++ {
		c, err := in.ReadByte()
		if errors.Is(err, io.EOF) && s.ended {
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the JSON list has no end")
		}
		if err == nil {
			err = s.take(c, visit)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", s.line, err)
		}
		if c == '\n' {
			s.line++
		}
	}
}

// take processes the next byte.
func (s *listScanner) take(c byte, visit func(number int, offset int64, size int)) error {
	if s.within && s.offset-s.begin > maxLine {
		return fmt.Errorf("got a record of more than %d bytes", maxLine)
	}
	switch {
	case s.after:
		s.after = false
	case s.quoted:
		s.after, s.quoted = c == '\\', c != '"'
	case isSpace(c) || s.depth == 0 && !s.ended && c != '[':
	case s.ended:
		return errors.New("got text behind the end of the JSON list")
	case s.depth == 1 && (c == ',' || c == ']'):
		if s.within {
			visit(s.first, s.begin, int(s.offset-s.begin))
		}
		s.within, s.ended = false, c == ']'
	case s.depth == 0:
		s.depth = 1
	default:
		if !s.within {
			s.within, s.begin, s.first = true, s.offset, s.line
		}
		switch c {
		case '"':
			s.quoted = true
		case '{', '[':
			s.depth++
		case '}', ']':
			s.depth--
		}
	}
	return nil
}
