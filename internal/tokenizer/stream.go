package tokenizer

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Stream decodes ids one at a time, for text that is sent while it is generated.
// Its pieces, joined, are the text that [Tokenizer.Decode] returns, except where a later
// token changes text that was already sent. It is for one goroutine.
//
// It holds back text that ends in U+FFFD, which may be a character whose other
// bytes are still to come; [Stream.Flush] gives what was held back at the end. Each
// token costs amortised constant time: only the ids behind the last text sent are
// looked at.
type Stream struct {
	t    *Tokenizer
	skip bool

	held []byte // byte-level decoders: bytes that are not sent yet

	// For all other decoders. prefix, the text that was sent last, is the text of ids[:sent].
	ids    []int32
	sent   int
	prefix []byte
	last   []byte // the text of ids
	fresh  bool   // last is that of ids as they are
	again  int    // not 0: so many ids there must be before they are decoded again
	run    []byte // the byte tokens at the end of ids
	broken bool   // run is not valid UTF-8 as it stands
}

// RetractedError says that a token changed text that a [Stream] had already
// returned: a run of byte tokens that was valid UTF-8 so far no longer is. The
// stream continues behind it.
type RetractedError struct {
	ID      int32
	Sent    string // what was sent last
	Decoded string // what it should have been, and what follows it
}

func (e *RetractedError) Error() string {
	return fmt.Sprintf("tokenizer: token %d changed text that was already sent: %q became %q", e.ID, e.Sent, e.Decoded)
}

// NewStream starts a text. With skipSpecial, special tokens have no text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream { return &Stream{t: t, skip: skipSpecial} }

// Next adds an id and returns the text that is now certain; ok is false if there is
// none yet. The error is a [*RetractedError]; text is then that of the ids not sent
// before, and a server that cannot take text back can send it and continue.
func (s *Stream) Next(id int32) (text string, ok bool, err error) {
	if !s.t.shown(id, s.skip) {
		return "", false, nil
	}
	if s.byteLevel() {
		spelled, _ := s.t.fast().token(id)
		s.held = append(s.held, spelled...)
		if len(s.held) == 0 || open(s.held) {
			return "", false, nil
		}
		text, s.held = lossy(s.held), s.held[:0]
		return text, true, nil
	}
	return s.next(id)
}

// open reports whether b decodes to text that ends in U+FFFD.
func open(b []byte) bool {
	r, n := utf8.DecodeLastRune(b)
	return r == utf8.RuneError && n > 0
}

// byteLevel reports whether every token is a string of bytes.
func (s *Stream) byteLevel() bool { return s.t.fast() != nil && s.t.fast().byteLevel }

// manySilent is how many tokens without text are decoded again with each more. Where a file's
// decoder makes no text of more than these, they are decoded when they are a quarter more, so
// that the whole takes time in proportion to its length. Text may then come later.
const manySilent = 64

// next follows the reference step by step, see the fields of [Stream].
func (s *Stream) next(id int32) (string, bool, error) {
	if len(s.prefix) == 0 && len(s.ids) > 0 && !s.broken && s.again == 0 {
		if text := s.text(); !open(text) {
			s.prefix, s.sent = append(s.prefix, text...), len(s.ids)
		}
	}
	s.ids = append(s.ids, id)
	s.fresh = false
	if s.broken = s.pending(id); s.broken {
		return "", false, nil
	}
	if len(s.ids) < s.again {
		return "", false, nil
	}
	text := s.text()
	if len(text) <= len(s.prefix) || open(text) {
		if n := len(s.ids); n > manySilent {
			s.again = n + n/4
		}
		return "", false, nil
	}
	s.again = 0
	var err error
	var rest string
	if tail, ok := bytes.CutPrefix(text, s.prefix); ok {
		rest = string(tail)
	} else {
		err = &RetractedError{id, string(s.prefix), string(text)}
		rest = string(s.t.appendText(nil, s.ids[s.sent:]))
	}
	s.ids = append(s.ids[:0], s.ids[s.sent:]...)
	s.sent, s.fresh = len(s.ids), false
	s.prefix = append(s.prefix[:0], s.text()...)
	return rest, true, err
}

// pending reports, without decoding, that the text ends in U+FFFD because id is a byte token of a
// run that is not yet valid UTF-8.
func (s *Stream) pending(id int32) bool {
	if s.t.fast() == nil {
		return false
	}
	spelled, isByte := s.t.fast().token(id)
	if !isByte {
		s.run = s.run[:0]
		return false
	}
	// Only the tail of a valid run matters, and an invalid run stays invalid.
	if len(s.run) > utf8.UTFMax {
		return true
	}
	s.run = append(s.run, spelled...)
	for len(s.run) > 0 && utf8.FullRune(s.run) {
		r, n := utf8.DecodeRune(s.run)
		if r == utf8.RuneError {
			if n > 1 { // a genuine U+FFFD
				s.run = s.run[:0]
				return true
			}
			s.run = append(s.run[:0], "\xff\xff\xff\xff\xff"...) // broken until the run ends
			return true
		}
		s.run = s.run[:copy(s.run, s.run[n:])]
	}
	return len(s.run) > 0
}

// text decodes ids once. The result is valid until the next call.
func (s *Stream) text() []byte {
	if !s.fresh {
		s.last, s.fresh = s.t.appendText(s.last[:0], s.ids), true
	}
	return s.last
}

// Flush ends the text. It returns the text that was held back, with broken characters as U+FFFD.
// The stream can then start another text.
func (s *Stream) Flush() string {
	var rest string
	if s.byteLevel() {
		rest = lossy(s.held)
	} else if len(s.ids) > s.sent {
		if tail, ok := bytes.CutPrefix(s.text(), s.prefix); ok {
			rest = string(tail)
		} else {
			rest = string(s.t.appendText(nil, s.ids[s.sent:]))
		}
	}
	*s = Stream{t: s.t, skip: s.skip, held: s.held[:0]}
	return rest
}
