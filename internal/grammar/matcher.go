package grammar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/grammar/vocab"
)

// A Matcher reads one text, token by token. It is for one goroutine; matchers of one grammar may be
// used by several.
type Matcher struct {
	g     *Grammar
	at    *state
	ended bool
	begun bool // a token was read
	loose bool // a text may have any spelling in tokens
	stop  []int32
	bits  vocab.Bits
	shown *state // whose mask bits has; nil: none
	err   error
}

// NewMatcher returns a matcher at the beginning of a text. stop are the ids that end a text; they
// are allowed where the text is complete.
func (g *Grammar) NewMatcher(stop []int32) *Matcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, err := g.first()
	return &Matcher{g: g, at: at, err: err, stop: stop, bits: make(vocab.Bits, g.vocab.Words)}
}

// Continues says that the text goes on where another ends, so that a decoder shows the space with
// which it may begin.
func (m *Matcher) Continues() { m.begun = true }

// AnyTokens allows all spellings of a text in tokens. Otherwise a text that is certain has the tokens
// that the tokenizer would give it.
func (m *Matcher) AnyTokens() { m.loose, m.shown = true, nil }

// Warm finds the tokens that may begin a text, so that a matcher need not.
func (g *Grammar) Warm() {
	m := g.NewMatcher(nil)
	m.Mask()
}

// MatcherBytes returns the memory of a matcher, without that of its grammar.
func (g *Grammar) MatcherBytes() int { return 8*g.vocab.Words + 200 }

// Mask returns the ids that may come next: bit id%64 of word id/64. The result is valid until the
// next call. It has no ids if the grammar is too ambiguous.
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

// dropSpace allows tokens at the beginning of a text whose first byte is a space as if they did not
// have it, because the decoder drops it.
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

// Accept reads a token. It fails if the mask does not allow it.
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

// Err returns why the matcher has stopped, nil if it has not.
func (m *Matcher) Err() error { return m.err }

// Match reports whether a whole text matches. Special tokens in it are text.
func (g *Grammar) Match(text string) bool {
	m := g.NewMatcher(nil)
	return m.err == nil && m.read([]byte(text)) == nil && m.Complete()
}
