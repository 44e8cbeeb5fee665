package generate

import (
	"strings"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/text"
)

// A budget ends the reasoning of an answer after some tokens: it then allows no id but those of the marker
// that ends reasoning. It limits nothing else, and tells the constraint of the content, if there is one, what
// was chosen.
type budget struct {
	frame   text.Frame
	next    engine.Constraint // nil: none
	decoder *text.Decoder
	closing []int32 // the ids of the marker
	words   int     // of a mask

	state  reasoning
	left   int    // tokens of reasoning that there may still be
	late   int    // tokens since then, which end a character
	forced int    // ids of the marker that were chosen
	tail   string // the end of the text, in which a marker may be
	mask   []uint64
}

// reasoning is where an answer is.
type reasoning uint8

const (
	undecided reasoning = iota // it may still begin with a marker
	inside
	closing // the marker is forced
	over
)

// mostLate is how many tokens one character may have after its first.
const mostLate = 3

// budgeted returns the constraint of an answer to r with its budget, and next.
func (m *Model) budgeted(r *Request, next engine.Constraint) engine.Constraint {
	if r.ReasoningBudget == nil || r.Parse == nil || m.Chat == nil || m.Tokenizer == nil {
		return next
	}
	b := &budget{frame: m.Chat.Frame(*r.Parse), next: next, decoder: m.Tokenizer.NewDecoder(false), words: (m.Vocab() + 63) / 64, left: *r.ReasoningBudget}
	end := b.frame.Close
	if b.frame.Inside != "" {
		end, b.state = b.frame.Inside, inside
	}
	if end == "" { // the model writes no reasoning
		return next
	}
	ids, err := m.Tokenizer.Encode(end, text.EncodeOptions{})
	if err != nil || len(ids) == 0 {
		return next
	}
	b.closing, b.frame.Close = ids, end
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
		piece, _, _ := b.decoder.Next(id) // after text that changes the decoder goes on
		b.tail += piece
		if b.state == undecided {
			b.begin()
			return nil
		}
		if strings.Contains(b.tail, b.frame.Close) {
			b.state, b.tail = over, ""
			return nil
		}
		b.tail = b.tail[max(0, len(b.tail)-len(b.frame.Close)):]
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

// begin finds out whether the answer begins with reasoning.
func (b *budget) begin() {
	text := strings.TrimLeft(b.tail, " \t\r\n")
	switch {
	case strings.HasPrefix(text, b.frame.Open):
		b.state, b.tail = inside, text[len(b.frame.Open):]
		b.spend(0)
	case !strings.HasPrefix(b.frame.Open, text):
		b.state, b.tail = over, ""
	}
}

// spend takes n tokens of the budget.
func (b *budget) spend(n int) {
	if b.left -= n; b.left <= 0 && b.state == inside {
		b.state = closing
	}
}
