package chars

import (
	"sync"

	"github.com/heftai/heft/internal/grammar/vocab"
)

// Words are the tokens of a vocabulary by the classes of their characters, for one language. Tokens
// that a language does not distinguish are read together. It is safe for concurrent use.
type Words struct {
	l *Language
	v *vocab.Trie

	mu    sync.Mutex
	from  map[int32]*words // by the speller's state in which tokens begin
	bytes int
}

// MaxWordsBytes is the approximate maximum memory of [Words].
const MaxWordsBytes = 4 << 20

// words is a trie of classes.
type words struct {
	nodes []word
	exits map[byte][]exit
}

// word is a sequence of classes, with the tokens that end there.
type word struct {
	next  map[uint8]int32
	ids   []int32
	begun []begun
}

// begun are tokens that end within a character.
type begun struct {
	byte int32 // state of the speller
	ids  []int32
}

// exit is a node of the vocabulary's trie after a word.
type exit struct {
	word int32
	node int32
}

// NewWords returns the tokens of v for l.
func NewWords(l *Language, v *vocab.Trie) *Words { return &Words{l: l, v: v} }

// Bytes returns the approximate memory of w.
func (w *Words) Bytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// words returns the tokens that begin in a state of the speller.
func (w *Words) words(q int32) *words {
	w.mu.Lock()
	defer w.mu.Unlock()
	if found := w.from[q]; found != nil {
		return found
	}
	made := w.make(q)
	size := 0
	for i := range made.nodes {
		size += 100 + 24*len(made.nodes[i].next) + 4*len(made.nodes[i].ids) + 40*len(made.nodes[i].begun)
	}
	for _, list := range made.exits {
		size += 8 * len(list)
	}
	if w.from == nil || w.bytes+size > MaxWordsBytes {
		w.from, w.bytes = map[int32]*words{}, 0
	}
	w.from[q] = made
	w.bytes += size
	return made
}

// make walks the vocabulary's trie from a state of the speller.
func (w *Words) make(q int32) *words {
	t, spell := w.v, w.l.spell
	out := &words{nodes: make([]word, 1), exits: map[byte][]exit{}}
	type place struct{ byte, word int32 }
	var stack [vocab.MaxToken + 1]place
	stack[0] = place{q, 0}
	n := int32(t.Len())
	for i := int32(0); i < n; {
		depth := t.Depth[i]
		from := stack[depth]
		to, class := spell.step(from.byte, t.Bytes[i])
		if from.byte == spell.d.Start() && depth > 0 {
			out.exits[t.Bytes[i]] = append(out.exits[t.Bytes[i]], exit{from.word, i})
		}
		if to < 0 {
			i = t.Skip[i]
			continue
		}
		at := place{to, from.word}
		ids := t.IDs[t.First[i]:t.First[i+1]]
		if class >= 0 {
			at = place{spell.d.Start(), out.child(from.word, uint8(class))}
			out.nodes[at.word].ids = append(out.nodes[at.word].ids, ids...)
		} else if len(ids) > 0 {
			out.nodes[at.word].add(to, ids)
		}
		stack[depth+1] = at
		i++
	}
	return out
}

func (w *words) child(parent int32, class uint8) int32 {
	if to, ok := w.nodes[parent].next[class]; ok {
		return to
	}
	to := int32(len(w.nodes))
	w.nodes = append(w.nodes, word{})
	if w.nodes[parent].next == nil {
		w.nodes[parent].next = map[uint8]int32{}
	}
	w.nodes[parent].next[class] = to
	return to
}

func (w *word) add(q int32, ids []int32) {
	for i := range w.begun {
		if w.begun[i].byte == q {
			w.begun[i].ids = append(w.begun[i].ids, ids...)
			return
		}
	}
	w.begun = append(w.begun, begun{q, append([]int32(nil), ids...)})
}

// Read calls add with the tokens that s can read within the language. It returns, for each byte in
// after, the nodes of the vocabulary's trie that begin with it where the text may end before. It
// returns false if it exceeds steps, which it uses up.
func (w *Words) Read(s *State, after []byte, steps *int, add func(ids []int32)) (nodes map[byte][]int32, ok bool) {
	found := w.words(s.byte)
	ends := make([]bool, len(found.nodes))
	type place struct {
		word int32
		s    *State
	}
	work := []place{{0, s}}
	for len(work) > 0 {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		o := &found.nodes[p.word]
		if p.word > 0 {
			add(o.ids)
			ends[p.word] = w.l.Accepts(p.s)
		}
		for _, b := range o.begun {
			if reach := p.s.next.and(&w.l.spell.reach[b.byte]); !reach.empty() {
				add(b.ids)
			}
		}
		if *steps -= (2 + len(p.s.at)) * (1 + len(o.next)); *steps < 0 {
			return nil, false
		}
		for class := range p.s.next.classes {
			child, ok := o.next[uint8(class)]
			if !ok {
				continue
			}
			if to := w.l.read(p.s, class); to != nil {
				work = append(work, place{child, to})
			}
		}
	}
	nodes = map[byte][]int32{}
	for _, b := range after {
		for _, e := range found.exits[b] {
			if ends[e.word] {
				nodes[b] = append(nodes[b], e.node)
			}
		}
	}
	return nodes, true
}
