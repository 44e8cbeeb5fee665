package grammar

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/grammar/chars"
)

// language is a set of strings that is too large for an automaton over bytes. Only one grammar uses
// it.
type language struct {
	*chars.Language
	words *chars.Words
}

// langState is a position in a text of a language.
type langState struct {
	*chars.State
	serial int64
}

// Language returns a terminal of the strings of l, whose spelling has the escapes of [Builder.Escape].
func (b *Builder) Language(l *chars.Language) *Terminal {
	return &Terminal{max: -1, lang: &language{l, chars.NewWords(l, b.lib.vocab.Trie)}}
}

// readLanguage returns a position that reads the strings of t, then next.
func (b *Builder) readLanguage(t *Terminal, next Pos) Pos {
	start := t.lang.Start()
	if next == Fail || start == nil {
		return Fail
	}
	p := Fail
	if start.Continues() {
		p = b.addTerm(t, next)
	}
	if t.lang.Accepts(start) {
		return b.Split(p, next)
	}
	return p
}

// langState returns the cached state of the terminal at a position.
func (g *Grammar) langState(at Pos, s *chars.State) *langState {
	key := s.AppendKey(binary.LittleEndian.AppendUint32(nil, uint32(g.ops[at].arg)))
	found := g.langs[string(key)]
	if found == nil {
		g.serial++
		found = &langState{s, int64(g.serial)}
		g.langs[string(key)] = found
		g.bytes += s.Bytes() + len(key) + 80
	}
	return found
}

// firstHead returns the head at the start of a terminal.
func (g *Grammar) firstHead(p place, t *Terminal) head {
	if t.lang == nil {
		return head{at: p.at, q: t.start(), frame: p.frame}
	}
	s := g.langState(p.at, t.lang.Start())
	return head{p.at, s.serial, p.frame, s}
}

// stepLanguage adds what follows a head of a language after a byte.
func (g *Grammar) stepLanguage(h head, t *Terminal, b byte) {
	g.steps -= h.lang.Steps()
	s := t.lang.Step(h.lang.State, b)
	if s == nil {
		return
	}
	if t.lang.Accepts(s) {
		g.work = append(g.work, place{g.ops[h.at].next, h.frame})
	}
	if s.Continues() {
		to := g.langState(h.at, s)
		g.heads = append(g.heads, head{h.at, to.serial, h.frame, to})
	}
}

// addLanguage adds the tokens that a head of a language can read.
func (g *Grammar) addLanguage(m *mask, h head, t *Terminal) error {
	rest, err := g.closure([]place{{g.ops[h.at].next, h.frame}})
	if err != nil {
		return err
	}
	var after []byte
	for b := range 256 {
		if g.reads(rest, byte(b)) {
			after = append(after, byte(b))
		}
	}
	exits, ok := t.lang.words.Read(h.lang.State, after, &g.steps, func(ids []int32) { m.ids = append(m.ids, ids...) })
	if !ok {
		return errTooAmbiguous
	}
	for _, b := range after {
		if len(exits[b]) == 0 {
			continue
		}
		trie := g.vocab.Trie.Merge(exits[b])
		if err := g.walk(m, trie, 0, int32(trie.Len()), rest); err != nil {
			return err
		}
	}
	return nil
}
