package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Stream decodes ids one at a time, for text that is sent while it is generated.
// What it returns, joined, is what [Tokenizer.Decode] returns, except where a later
// token changes text that was already sent. It is for one goroutine.
//
// It holds back text that ends in U+FFFD, which may be a character whose other
// bytes are still to come; [Stream.Flush] gives what was held back at the end. Each
// token costs amortised constant time: only the ids behind the last text sent are
// looked at.
type Stream struct {
	t    *Tokenizer
	skip bool

	held []byte // byte-level decoders: what is not sent yet

	// All other decoders. ids[:sent] made prefix, the last text sent.
	ids    []int32
	sent   int
	prefix string
	last   string // the text of ids
	fresh  bool   // last is that of ids as they are
	run    []byte // the byte tokens at the end of ids
	broken bool   // run is not valid UTF-8 as it stands
}

// RetractedError says that a token changed text that a [Stream] had already
// returned: a run of byte tokens that was valid UTF-8 so far no longer is. The
// stream goes on behind it.
type RetractedError struct {
	ID      int32
	Sent    string // what was sent last
	Decoded string // what it should have been, and what follows it
}

func (e *RetractedError) Error() string {
	return fmt.Sprintf("tokenizer: token %d changed text that was already sent: %q became %q", e.ID, e.Sent, e.Decoded)
}

// NewStream begins a text. With skipSpecial special tokens give no text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream { return &Stream{t: t, skip: skipSpecial} }

// Next adds an id and returns the text that is now certain; ok is false if there is
// none yet. The error is a [*RetractedError]; text is then that of the ids not sent
// before, and a server that cannot take text back can send it and go on.
func (s *Stream) Next(id int32) (text string, ok bool, err error) {
	if !s.t.shown(id, s.skip) {
		return "", false, nil
	}
	if s.t.bytes != nil {
		s.held = append(s.held, s.t.bytes[id]...)
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
	r, _ := utf8.DecodeLastRune(b)
	return r == utf8.RuneError
}

// next follows the reference step by step, see the fields of [Stream].
func (s *Stream) next(id int32) (string, bool, error) {
	if s.prefix == "" && len(s.ids) > 0 && !s.broken {
		if text := s.text(); !endsOpen(text) {
			s.prefix, s.sent = text, len(s.ids)
		}
	}
	s.ids = append(s.ids, id)
	s.fresh = false
	if s.broken = s.pending(id); s.broken {
		return "", false, nil
	}
	text := s.text()
	if len(text) <= len(s.prefix) || endsOpen(text) {
		return "", false, nil
	}
	rest, ok := strings.CutPrefix(text, s.prefix)
	var err error
	if !ok {
		err = &RetractedError{id, s.prefix, text}
		rest = s.t.Decode(s.ids[s.sent:], s.skip)
	}
	s.ids = append(s.ids[:0], s.ids[s.sent:]...)
	s.sent, s.fresh = len(s.ids), false
	s.prefix = s.text()
	return rest, true, err
}

// pending reports without decoding that the text ends in U+FFFD because id is a
// byte token of a run that is no valid UTF-8 so far.
func (s *Stream) pending(id int32) bool {
	if !s.t.fallback {
		return false
	}
	token, _ := s.t.Token(id)
	b, ok := byteToken(token)
	if !ok {
		s.run = s.run[:0]
		return false
	}
	// Only the tail of a valid run matters, and nothing makes an invalid one valid.
	if len(s.run) > utf8.UTFMax {
		return true
	}
	s.run = append(s.run, b)
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

// text decodes ids, once.
func (s *Stream) text() string {
	if !s.fresh {
		s.last, s.fresh = s.t.Decode(s.ids, s.skip), true
	}
	return s.last
}

func endsOpen(text string) bool { return strings.HasSuffix(text, "\ufffd") }

// Flush ends the text: it returns what was held back, broken characters as U+FFFD.
// The stream is then as new.
func (s *Stream) Flush() string {
	var rest string
	if s.t.bytes != nil {
		rest = lossy(s.held)
	} else if len(s.ids) > s.sent {
		text, ok := strings.CutPrefix(s.text(), s.prefix)
		if !ok {
			text = s.t.Decode(s.ids[s.sent:], s.skip)
		}
		rest = text
	}
	*s = Stream{t: s.t, skip: s.skip, held: s.held[:0]}
	return rest
}
