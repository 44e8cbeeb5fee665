package grammar

import (
	"slices"
	"sync"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// lexer is an automaton with the tokens that it can read, which are computed at first use.
type lexer struct {
	d *dfa.DFA // nil before ready, if there is a make
	v *vocab.Vocab

	rests *rests // of the library

	make func() *dfa.DFA
	made sync.Once

	mu     sync.Mutex
	locals map[localKey]*local
	bytes  int // of locals

	once    sync.Once
	counted *counts // nil if characters cannot be counted
}

// counts returns the character positions of the automaton. of must always be the same for one
// lexer.
func (l *lexer) counts(of counting) *counts {
	l.once.Do(func() { l.counted = newCounts(l.d, of) })
	return l.counted
}

// ready makes the automaton, if it is made at first use.
func (l *lexer) ready() {
	if l.make != nil {
		l.made.Do(func() { l.d = l.make() })
	}
}

// automaton returns the approximate memory of the automaton.
func (l *lexer) automaton() int {
	if l.make != nil {
		return lateBytes
	}
	return l.d.Bytes()
}

// lateBytes is the approximate memory of an automaton that is made at first use: one of a range of
// numbers.
const lateBytes = 4 << 10

type localKey struct {
	state   int32
	counted bool
}

// local is what a state of a lexer can read, independent of the grammar around it.
type local struct {
	// The tokens that end in the lexer: a set if there are many, or a list. Without counts the list
	// is nil if there is a set.
	set vocab.Bits
	ids []int32 // with counts: ordered by the minimum number of characters that follow them
	// With counts: the ids after which at least n more characters follow are ids[:upTo[n]].
	upTo []int32
	// ends are the tokens that end the string.
	ends []counted

	groups []exits // tokens that continue after the lexer
	most   int32   // maximum of characters before an end, of all tokens

	mu    sync.Mutex
	tries map[exitKey]*vocab.Trie
}

// counted is a token or a node with its number of characters before the end of the string.
type counted struct {
	id    int32
	chars int32
}

// exits are the nodes of the vocabulary's trie from which tokens continue after the lexer with byte
// b.
type exits struct {
	b     byte
	nodes []counted
}

type exitKey struct {
	b         byte
	need, rem int32
}

// setFrom is the number of ids from which on a set is used instead of a list.
const setFrom = 1024

// maxLexerBytes is the maximum memory of the locals of a lexer.
const maxLexerBytes = 8 << 20

// local returns what state s can read.
func (l *lexer) local(s int32, c *counts) *local {
	key := localKey{s, c != nil}
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.locals[key]; found != nil {
		return found
	}
	var made *local
	if c == nil {
		made = l.rests.local(l, s)
	} else {
		made = l.readCounted(s, c)
	}
	size := made.bytes()
	if l.bytes+size > maxLexerBytes || l.locals == nil {
		l.locals, l.bytes = map[localKey]*local{}, 0
	}
	l.locals[key] = made
	l.bytes += size
	return made
}

// bytes returns the approximate memory of out.
func (out *local) bytes() int {
	size := 8*len(out.set) + 4*len(out.ids) + 200
	for _, g := range out.groups {
		size += 24 + 8*len(g.nodes)
	}
	return size
}

// read walks the vocabulary's trie from state s.
func (l *lexer) read(s int32) *local {
	t, d := l.v.Trie, l.d
	out := &local{tries: map[exitKey]*vocab.Trie{}}
	var stack [vocab.MaxToken + 1]int32
	stack[0] = s
	var leave []int32
	n := int32(t.Len())
	for i := int32(0); i < n; {
		depth := t.Depth[i]
		q := d.Step(stack[depth], t.Bytes[i])
		if q == dfa.Dead {
			i = t.Skip[i]
			continue
		}
		out.ids = append(out.ids, t.IDs[t.First[i]:t.First[i+1]]...)
		if d.Accepts(q) && t.Skip[i] > i+1 {
			leave = append(leave, i)
		}
		if !d.Continues(q) {
			i = t.Skip[i]
			continue
		}
		stack[depth+1] = q
		i++
	}
	out.group(t, leave, nil)
	if len(out.ids) >= setFrom {
		out.set = make(vocab.Bits, l.v.Words)
		for _, id := range out.ids {
			out.set.Set(id)
		}
		out.ids = nil
	}
	return out
}

// readCounted walks the vocabulary's trie from state s and counts characters.
func (l *lexer) readCounted(s int32, c *counts) *local {
	t, d := l.v.Trie, l.d
	out := &local{tries: map[exitKey]*vocab.Trie{}}
	var states [vocab.MaxToken + 1]int32
	var chars [vocab.MaxToken + 1]int32
	states[0] = s
	var leave, left []int32
	var found []counted
	n := int32(t.Len())
	for i := int32(0); i < n; {
		depth := t.Depth[i]
		from := states[depth]
		q := d.Step(from, t.Bytes[i])
		if q == dfa.Dead {
			i = t.Skip[i]
			continue
		}
		count := chars[depth] + int32(c.read(from, q))
		for _, id := range t.IDs[t.First[i]:t.First[i+1]] {
			found = append(found, counted{id, count + c.least[q]})
			if c.final[q] {
				out.ends = append(out.ends, counted{id, count})
			}
		}
		if d.Accepts(q) {
			out.most = max(out.most, count)
		}
		if d.Accepts(q) && t.Skip[i] > i+1 {
			leave, left = append(leave, i), append(left, count)
		}
		if !d.Continues(q) {
			i = t.Skip[i]
			continue
		}
		states[depth+1], chars[depth+1] = q, count
		i++
	}
	out.group(t, leave, left)
	out.order(found, l.v.Words)
	return out
}

// order sorts tokens by their characters.
func (out *local) order(found []counted, words int) {
	most := int32(0)
	for _, f := range found {
		most = max(most, f.chars)
	}
	at := make([]int32, most+2)
	for _, f := range found {
		at[f.chars+1]++
	}
	for i := range most + 1 {
		at[i+1] += at[i]
	}
	out.upTo = slices.Clone(at[1:])
	out.ids = make([]int32, len(found))
	for _, f := range found {
		out.ids[at[f.chars]] = f.id
		at[f.chars]++
	}
	if len(found) >= setFrom {
		out.set = make(vocab.Bits, words)
		for _, f := range found {
			out.set.Set(f.id)
		}
	}
}

// group sorts the children of nodes by their bytes.
func (out *local) group(t *vocab.Trie, nodes, chars []int32) {
	var by [256][]counted
	for k, i := range nodes {
		for child := i + 1; child < t.Skip[i]; child = t.Skip[child] {
			c := counted{id: child}
			if chars != nil {
				c.chars = chars[k]
			}
			by[t.Bytes[child]] = append(by[t.Bytes[child]], c)
		}
	}
	for b, list := range by {
		if list != nil {
			out.groups = append(out.groups, exits{byte(b), slices.Clip(list)})
		}
	}
}

// trie returns the tokens of g after the lexer, for strings that end after need to rem more
// characters.
func (out *local) trie(v *vocab.Vocab, g *exits, need, rem int32) *vocab.Trie {
	key := exitKey{g.b, min(need, out.most+1), min(rem, out.most)}
	out.mu.Lock()
	defer out.mu.Unlock()
	if t := out.tries[key]; t != nil {
		return t
	}
	nodes := make([]int32, 0, len(g.nodes))
	for _, n := range g.nodes {
		if n.chars >= key.need && n.chars <= key.rem {
			nodes = append(nodes, n.id)
		}
	}
	t := v.Trie.Merge(nodes)
	out.tries[key] = t
	return t
}
