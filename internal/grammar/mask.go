package grammar

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/grammar/vocab"
)

// mask is the set of tokens that a state can read, in shared parts.
type mask struct {
	sets []part
	ids  []int32 // and these
}

// part is a set without some ids.
type part struct {
	set   vocab.Bits
	minus []int32
}

// mask returns the tokens that s can read.
func (g *Grammar) mask(s *state) (*mask, error) {
	if s.mask != nil {
		return s.mask, nil
	}
	m := &mask{}
	for _, h := range s.heads {
		many, err := g.addHead(m, h)
		if err == nil && many {
			m = &mask{}
			err = g.walk(m, g.vocab.Trie, 0, int32(g.vocab.Trie.Len()), s)
		}
		if err != nil {
			return nil, err
		}
		if many {
			break
		}
	}
	m.settle(g.vocab.Words)
	s.mask = m
	g.bytes += 100 + 4*len(m.ids)
	return m, nil
}

// manyExits: if tokens leave a terminal at more than this part of the vocabulary's nodes, the whole
// vocabulary is read through the grammar instead.
const manyExits = 16

// addHead adds the tokens that one head can read. many reports that it did not, as very many of
// them continue after the head's terminal.
func (g *Grammar) addHead(m *mask, h head) (many bool, err error) {
	o := &g.ops[h.at]
	t := g.terms[o.arg]
	if t.lang != nil {
		return false, g.addLanguage(m, h, t)
	}
	l := t.lex.local(t.state(h.q), t.counts)
	need, rem := int32(0), int32(math.MaxInt32)
	var minus []int32
	switch {
	case t.counts != nil:
		count := h.q / int64(t.lex.d.States())
		need = int32(min(max(t.min-count, 0), math.MaxInt32))
		if t.max >= 0 {
			rem = int32(min(t.max-count, math.MaxInt32))
		}
		m.addCounted(l, need, rem)
	default:
		if t.except != nil {
			minus = t.excluded(g.vocab, h.q)
		}
		m.add(l, minus)
	}
	if len(l.groups) == 0 {
		return false, nil
	}
	rest, err := g.closure([]place{{o.next, h.frame}})
	if err != nil {
		return false, err
	}
	from, nodes, read := len(m.ids), 0, []*exits(nil)
	for i := range l.groups {
		if e := &l.groups[i]; g.reads(rest, e.b) {
			read = append(read, e)
			nodes += len(e.nodes)
		}
	}
	if nodes > g.vocab.Trie.Len()/manyExits {
		return true, nil
	}
	for _, e := range read {
		trie := l.trie(g.vocab, e, need, rem)
		if err := g.walk(m, trie, 0, int32(trie.Len()), rest); err != nil {
			return false, err
		}
	}
	m.ids = m.ids[:from+len(without(m.ids[from:], minus))]
	return false, nil
}

// reads reports whether s can read byte b.
func (g *Grammar) reads(s *state, b byte) bool {
	for _, h := range s.heads {
		if t := g.terms[g.ops[h.at].arg]; t.lang != nil && t.lang.Step(h.lang.State, b) != nil || t.lang == nil && t.step(h.q, b) != dead {
			return true
		}
	}
	return false
}

// walk adds the tokens of the nodes from to end of a trie that s can read. The first node's byte is
// one that s reads.
func (g *Grammar) walk(m *mask, t *vocab.Trie, from, end int32, s *state) error {
	if from >= end {
		return nil
	}
	base := t.Depth[from]
	stack := make([]*state, 1, 16)
	stack[0] = s
	for i := from; i < end; {
		depth := int(t.Depth[i] - base)
		to, err := g.step(stack[depth], t.Bytes[i])
		if err != nil {
			return err
		}
		if g.steps -= 2; g.steps < 0 || g.bytes > maxMaskBytes {
			return errTooAmbiguous
		}
		if to == nil {
			i = t.Skip[i]
			continue
		}
		m.ids = append(m.ids, t.IDs[t.First[i]:t.First[i+1]]...)
		stack = append(stack[:depth+1], to)
		i++
	}
	return nil
}

func (m *mask) add(l *local, minus []int32) {
	if l.set == nil {
		m.ids = append(m.ids, without(slices.Clone(l.ids), minus)...)
		return
	}
	m.addSet(part{l.set, minus})
}

// addSet adds a set, unless it is already there.
func (m *mask) addSet(p part) {
	for _, q := range m.sets {
		if len(p.minus) == 0 && len(q.minus) == 0 && &p.set[0] == &q.set[0] {
			return
		}
	}
	m.sets = append(m.sets, p)
}

// addCounted adds the tokens of a string after which need to rem more characters must follow.
func (m *mask) addCounted(l *local, need, rem int32) {
	upTo := len(l.ids)
	if int(rem) < len(l.upTo) {
		upTo = int(l.upTo[rem])
	}
	tooShort := map[int32]bool{}
	for _, e := range l.ends {
		if e.chars < need {
			tooShort[e.id] = true
		}
	}
	if l.set == nil || upTo < setFrom {
		for _, id := range l.ids[:upTo] {
			if !tooShort[id] {
				m.ids = append(m.ids, id)
			}
		}
		return
	}
	minus := l.ids[upTo:]
	if len(tooShort) > 0 {
		minus = append([]int32(nil), minus...)
		for id := range tooShort {
			minus = append(minus, id)
		}
	}
	m.addSet(part{l.set, minus})
}

// settle merges several sets with exceptions, or many ids, into one set.
func (m *mask) settle(words int) {
	mixed := false
	for _, p := range m.sets {
		mixed = mixed || len(p.minus) > 0 && len(m.sets) > 1
	}
	if !mixed && len(m.ids) < 4*setFrom {
		return
	}
	all := make(vocab.Bits, words)
	one := make(vocab.Bits, words)
	for _, p := range m.sets {
		copy(one, p.set)
		for _, id := range p.minus {
			one.Clear(id)
		}
		all.Or(one)
	}
	for _, id := range m.ids {
		all.Set(id)
	}
	m.sets, m.ids = []part{{set: all}}, nil
}

// fill writes the mask to bits.
func (m *mask) fill(bits vocab.Bits) {
	if len(m.sets) == 0 {
		clear(bits)
	}
	for i, p := range m.sets {
		if i == 0 {
			copy(bits, p.set)
		} else {
			bits.Or(p.set)
		}
		for _, id := range p.minus {
			bits.Clear(id)
		}
	}
	for _, id := range m.ids {
		bits.Set(id)
	}
}
