package grammar

import (
	"github.com/heftai/heft/internal/grammar/dfa"
)

// Quoted makes a part of a program that reads the same texts as they stand in a string of JSON: with a
// backslash before each quote and backslash. do makes it; what follows the part is made before. The texts have
// no control characters.
func (b *Builder) Quoted(do func() (Pos, error)) (Pos, error) {
	b.quoted = map[*Terminal]*Terminal{}
	defer func() { b.quoted = nil }()
	return do()
}

// quotedState is a state of a terminal, perhaps after the backslash of an escape.
type quotedState struct {
	q      int64
	escape bool
}

// quote returns the terminal of what t reads, as it stands in a string; nil if it is too large.
func (b *Builder) quote(t *Terminal) *Terminal {
	if known := b.quoted[t]; known != nil {
		return known
	}
	step := func(s quotedState, c byte) (quotedState, bool) {
		special := c == '"' || c == '\\'
		switch {
		case !s.escape && c == '\\':
			return quotedState{s.q, true}, t.step(s.q, '"') != dead || t.step(s.q, '\\') != dead
		case s.escape != special:
			return s, false
		}
		q := t.step(s.q, c)
		return quotedState{q, false}, q != dead
	}
	d, err := dfa.Build(quotedState{q: t.start()}, textBytes, step, func(s quotedState) bool { return !s.escape && t.accepts(s.q) }, b.Budget)
	if err != nil {
		b.large = true
		return nil
	}
	out := b.Terminal(d)
	b.quoted[t] = out
	return out
}

// textBytes are the bytes of texts without control characters.
var textBytes = func() string {
	var b []byte
	for c := ' '; c < 0xF5; c++ {
		b = append(b, byte(c))
	}
	return string(b)
}()
