package grammar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/grammar/vocab"
)

// A Matcher reads one text, token by token. It is for use by one goroutine. Matchers of one grammar
// may be used concurrently.
type Matcher struct {
	g     *Grammar
	at    *state
	ended bool
	begun bool // a token was read
	loose bool // a text may have any tokenization
	stop  []int32
	bits  vocab.Bits
	shown *state // the state whose mask bits has; nil: none
	err   error
}

// NewMatcher returns a matcher at the start of a text. stop has the ids that end a text; they are
// allowed if the text is complete.
func (g *Grammar) NewMatcher(stop []int32) *Matcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, err := g.first()
	return &Matcher{g: g, at: at, err: err, stop: stop, bits: make(vocab.Bits, g.vocab.Words)}
}

// Continues says that the text continues another one. A decoder then keeps the space with which it
// may start.
func (m *Matcher) Continues() { m.begun = true }

// AnyTokens allows all tokenizations of a text. Otherwise a text that is certain must have the
// tokens that the tokenizer would give it.
func (m *Matcher) AnyTokens() { m.loose, m.shown = true, nil }

// Warm computes the tokens that may start a text, so that a matcher does not have to.
func (g *Grammar) Warm() {
	m := g.NewMatcher(nil)
	m.Mask()
}

// MatcherBytes returns the memory of a matcher, without that of its grammar.
func (g *Grammar) MatcherBytes() int { return 8*g.vocab.Words + 200 }

// Mask returns the ids that may come next as a bit set: bit id%64 of word id/64. The result is
// valid until the next call. It has no ids if the grammar is too ambiguous.
func (m *Matcher) Mask() []uint64 {
	if m.shown == m.at && m.shown != nil && m.begun && !m.ended {
		return m.bits
	}
	clear(m.bits)
	m.shown = nil
	if !m.ended && m.err == nil {
		m.fill()
	}
	if m.err == nil && (m.ended || m.at.ends) {
		for _, id := range m.stop {
			if id >= 0 && int(id>>6) < len(m.bits) {
				m.bits.Set(id)
			}
		}
	}
	return m.bits
}

func (m *Matcher) fill() {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begins()
	m.at = g.adopt(m.at)
	if m.begun && !m.loose {
		id, ok, err := g.only(m.at)
		if err != nil {
			m.err = err
			return
		}
		if ok {
			m.bits.Set(id)
			m.shown = m.at
			return
		}
	}
	found, err := g.mask(m.at)
	if err != nil {
		m.err = err
		return
	}
	found.fill(m.bits)
	if !m.begun && g.vocab.DropsSpace {
		m.err = m.dropSpace()
		return
	}
	m.shown = m.at
}

// dropSpace also allows tokens at the start of a text that would be allowed without their leading
// space, because the decoder drops that space.
func (m *Matcher) dropSpace() error {
	t := m.g.vocab.Trie
	space := t.Find([]byte{' '})
	if space < 0 {
		return nil
	}
	for _, id := range t.IDs[t.First[space]:t.First[t.Skip[space]]] {
		m.bits.Clear(id)
	}
	more := &mask{}
	if err := m.g.walk(more, t, space+1, t.Skip[space], m.at); err != nil {
		return err
	}
	for _, id := range more.ids {
		m.bits.Set(id)
	}
	return nil
}

// Accept reads a token. It returns an error if the mask does not allow it.
func (m *Matcher) Accept(id int32) error {
	switch {
	case m.err != nil:
		return m.err
	case slices.Contains(m.stop, id) && (m.ended || m.at.ends):
		m.ended = true
		return nil
	case m.ended:
		return errors.New("grammar: the text has ended")
	}
	name := m.g.vocab.Name(id)
	if name == nil {
		return fmt.Errorf("grammar: token %d has no text", id)
	}
	if !m.begun && m.g.vocab.DropsSpace && len(name) > 1 && name[0] == ' ' {
		name = name[1:]
	}
	m.begun = true
	return m.read(name)
}

// read reads bytes.
func (m *Matcher) read(text []byte) error {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begins()
	s := g.adopt(m.at)
	for i, b := range text {
		next, err := g.step(s, b)
		if err == nil && next == nil {
			err = fmt.Errorf("grammar: %q does not match at byte %d", text, i)
		}
		if err != nil {
			m.err = err
			return err
		}
		s = next
	}
	m.at = s
	return nil
}

// Complete reports whether the text may end here.
func (m *Matcher) Complete() bool { return m.err == nil && (m.ended || m.at.ends) }

// Over reports whether the text must end here.
func (m *Matcher) Over() bool { return m.err != nil || m.ended || m.at.ends && len(m.at.heads) == 0 }

// Err returns the error that has stopped the matcher, or nil.
func (m *Matcher) Err() error { return m.err }

// Match reports whether a whole text matches. Special tokens in it count as text.
func (g *Grammar) Match(text string) bool {
	m := g.NewMatcher(nil)
	return m.err == nil && m.read([]byte(text)) == nil && m.Complete()
}
