package generate

import (
	"bytes"
	"strings"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/text"
)

// A budget ends the reasoning of an answer after a number of tokens: it then allows only the ids of
// the marker that ends reasoning. It limits nothing else. It passes the chosen ids to the
// constraint of the content, if there is one.
type budget struct {
	open, close []byte            // the markers
	next        engine.Constraint // nil: none
	decoder     *text.Decoder
	encode      func(string) ([]int32, error)
	closing     []int32 // ids of the marker, or of its missing part if the model has started it
	words       int     // length of a mask

	state  reasoning
	left   int    // tokens of reasoning that are left
	late   int    // tokens since then, which complete a character
	forced int    // ids of closing that were chosen
	tail   []byte // end of the text, which may contain a part of a marker
	mask   []uint64
}

// reasoning is the state of an answer.
type reasoning uint8

const (
	undecided reasoning = iota // it may still start with a marker
	inside
	closing // the marker is forced
	over
)

// mostLate is the maximum number of tokens of one character after its first.
const mostLate = 3

// reasoningFrame returns the markers of reasoning for the budget of r. Without a conversation, the
// prompt's text says whether the answer starts inside reasoning; if there is a constraint, it
// applies to the whole answer, which then has no reasoning.
func (m *Model) reasoningFrame(r *Request) (frame text.Frame, ok bool) {
	if r.ReasoningBudget == nil || m.Chat == nil || m.Tokenizer == nil {
		return frame, false
	}
	if r.Parse != nil {
		return m.Chat.Frame(*r.Parse), true
	}
	if r.Constraint != nil {
		return frame, false
	}
	if frame = m.Chat.Frame(text.ParseOptions{}); frame.Close == "" {
		return frame, false
	}
	prompt := m.Tokenizer.Decode(r.Prompt, false)
	if open := strings.LastIndex(prompt, frame.Open); open >= 0 && !strings.Contains(prompt[open:], frame.Close) {
		frame.Inside = frame.Close
	}
	return frame, true
}

// budgeted returns the constraint that enforces the budget of r and then next.
func (m *Model) budgeted(r *Request, frame text.Frame, next engine.Constraint) engine.Constraint {
	b := &budget{open: []byte(frame.Open), close: []byte(frame.Close), next: next, decoder: m.Tokenizer.NewDecoder(false), words: (m.Vocab() + 63) / 64, left: *r.ReasoningBudget}
	if frame.Inside != "" {
		b.close, b.state = []byte(frame.Inside), inside
	}
	if len(b.close) == 0 { // the model writes no reasoning
		return next
	}
	b.encode = func(s string) ([]int32, error) { return m.Tokenizer.Encode(s, text.EncodeOptions{}) }
	var err error
	if b.closing, err = b.encode(string(b.close)); err != nil || len(b.closing) == 0 {
		return next
	}
	b.spend(0)
	return b
}

// Mask implements engine.Constraint.
func (b *budget) Mask() []uint64 {
	if b.state != closing {
		if b.next == nil {
			return nil
		}
		return b.next.Mask()
	}
	if b.mask == nil {
		b.mask = make([]uint64, b.words)
	}
	clear(b.mask)
	id := b.closing[b.forced]
	b.mask[id/64] = 1 << (id % 64)
	return b.mask
}

// Accept implements engine.Constraint.
func (b *budget) Accept(id int32) error {
	if b.next != nil {
		if err := b.next.Accept(id); err != nil {
			return err
		}
	}
	switch b.state {
	case undecided, inside:
		piece, _, _ := b.decoder.Next(id) // after text that changes, the decoder continues
		b.tail = append(b.tail, piece...)
		if b.state == undecided {
			b.begin()
			return nil
		}
		if bytes.Contains(b.tail, b.close) {
			b.state = over
			return nil
		}
		b.keep(len(b.close))
		if b.spend(1); piece == "" && b.state == closing && b.late < mostLate {
			b.late, b.state = b.late+1, inside // within a character
		}
	case closing:
		if b.forced++; b.forced == len(b.closing) {
			b.state = over
		}
	}
	return nil
}

// keep drops all but the last n bytes of the tail.
func (b *budget) keep(n int) {
	if drop := len(b.tail) - n; drop > 0 {
		b.tail = b.tail[:copy(b.tail, b.tail[drop:])]
	}
}

// begin determines whether the answer starts with reasoning.
func (b *budget) begin() {
	text := bytes.TrimLeft(b.tail, " \t\r\n")
	switch {
	case bytes.HasPrefix(text, b.open):
		b.state = inside
		b.keep(len(text) - len(b.open))
		b.spend(0)
	case !bytes.HasPrefix(b.open, text):
		b.state = over
	}
}

// spend takes n tokens of the budget.
func (b *budget) spend(n int) {
	if b.left -= n; b.left <= 0 && b.state == inside {
		b.state = closing
		b.complete()
	}
}

// complete forces only the missing part of a marker that the model has started.
func (b *budget) complete() {
	for n := min(len(b.close)-1, len(b.tail)); n > 0; n-- {
		if !bytes.HasSuffix(b.tail, b.close[:n]) {
			continue
		}
		if rest, err := b.encode(string(b.close[n:])); err == nil && len(rest) > 0 {
			b.closing = rest
		}
		return
	}
}
