package grammar

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// Quoted builds a part of a program that reads texts in the form of a JSON string: with a backslash
// before each quote and backslash. do builds the part; positions after it must be made before. The
// texts have no control characters.
func (b *Builder) Quoted(do func() (Pos, error)) (Pos, error) {
	return b.quotedIn(&quoting{known: map[*Terminal]*Terminal{}}, do)
}

// QuotedLines is Quoted for texts that may contain line breaks, tabs and the other control
// characters with a one-letter escape. Inside another quoted part it returns [ErrTooLarge].
func (b *Builder) QuotedLines(do func() (Pos, error)) (Pos, error) {
	return b.quotedIn(&quoting{known: map[*Terminal]*Terminal{}, lines: true}, do)
}

func (b *Builder) quotedIn(q *quoting, do func() (Pos, error)) (Pos, error) {
	if b.quoted != nil {
		return Fail, ErrTooLarge
	}
	b.quoted = q
	defer func() { b.quoted = nil }()
	return do()
}

// quoting says how the terminals of a quoted part are written.
type quoting struct {
	known map[*Terminal]*Terminal
	lines bool
}

// escaped returns the byte that a letter stands for after a backslash.
func (q *quoting) escaped(c byte) (byte, bool) {
	if c == '"' || c == '\\' {
		return c, true
	}
	if i := strings.IndexByte("bfnrt", c); i >= 0 && q.lines {
		return "\b\f\n\r\t"[i], true
	}
	return 0, false
}

// Escape returns the spelling of a byte in the part that b builds: the byte itself, except within a
// quoted part. It is empty if there is none.
func (b *Builder) Escape(c byte) string {
	i := strings.IndexByte("\b\f\n\r\t", c)
	switch {
	case b.quoted == nil:
	case c == '"' || c == '\\':
		return string([]byte{'\\', c})
	case i >= 0 && b.quoted.lines:
		return string([]byte{'\\', "bfnrt"[i]})
	case c < ' ':
		return ""
	}
	return string([]byte{c})
}

// quotedState is a state of a terminal, or that state after the backslash of an escape.
type quotedState struct {
	q      int64
	escape bool
}

// quote returns the terminal of t's texts in the form of a JSON string, or nil if it is too large.
func (b *Builder) quote(t *Terminal) *Terminal {
	if known := b.quoted.known[t]; known != nil {
		return known
	}
	step := func(s quotedState, c byte) (quotedState, bool) {
		if !s.escape && c == '\\' {
			return quotedState{s.q, true}, slices.ContainsFunc([]byte(`"\bfnrt`), func(letter byte) bool {
				e, ok := b.quoted.escaped(letter)
				return ok && t.step(s.q, e) != dead
			})
		}
		if s.escape {
			var ok bool
			if c, ok = b.quoted.escaped(c); !ok {
				return s, false
			}
		} else if c == '"' {
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
	b.quoted.known[t] = out
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
