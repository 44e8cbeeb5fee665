package grammar

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/grammar/chars"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// A Grammar is a program with its cached states and masks. It is safe for concurrent use.
type Grammar struct {
	vocab *vocab.Vocab
	ops   []op
	terms []*Terminal
	loops []loop
	rules []Pos
	begin Pos
	base  int // bytes of the program

	mu     sync.Mutex
	frames map[frameKey]*frame
	states map[string]*state
	langs  map[string]*langState
	bytes  int // of frames, states and masks
	age    uint32
	serial uint32
	steps  int // left for the current operation

	key     []byte
	work    []place
	visited map[place]struct{}
	heads   []head
	ends    bool
}

// frame says where to continue after a rule, or how often a loop has run.
type frame struct {
	frameKey
	serial uint32
}

type frameKey struct {
	next   Pos // after a rule
	loop   int32
	count  int32
	parent *frame
}

// noLoop is the loop of a frame of a rule.
const noLoop int32 = -1

// head is one way to continue.
type head struct {
	at    Pos // of an opTerm
	q     int64
	frame *frame
	lang  *langState // of a language, whose serial is q
}

type place struct {
	at    Pos
	frame *frame
}

// state is a set of heads.
type state struct {
	heads []head
	ends  bool // the text may end
	age   uint32
	next  []edge
	mask  *mask
	only  only
}

type edge struct {
	b  byte
	to *state // nil: no text continues with the byte
}

// Limits of cached data and of work.
const (
	maxGrammarBytes = 1 << 20
	maxMaskBytes    = 16 * maxGrammarBytes // before a mask fails
	maxHeads        = 1 << 14
	stepsPerMask    = 20_000_000 // moves of heads
)

var errTooAmbiguous = errors.New("grammar: too many ways to read the text")

// Bytes returns the approximate memory of g.
func (g *Grammar) Bytes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	total := g.base + g.bytes
	for _, t := range g.terms {
		if t.lang != nil {
			total += t.lang.words.Bytes()
		}
	}
	return total
}

// MaxBytes returns the approximate maximum memory of g.
func (g *Grammar) MaxBytes() int {
	most := g.base + maxGrammarBytes
	for _, t := range g.terms {
		if t.lang != nil {
			most += chars.MaxWordsBytes
		}
	}
	return most
}

// reset drops all states. Matchers keep the states that they use.
func (g *Grammar) reset() {
	g.frames, g.states, g.langs = map[frameKey]*frame{}, map[string]*state{}, map[string]*langState{}
	g.visited = map[place]struct{}{}
	g.bytes = 0
	g.age++
}

// begins starts an operation: it resets the budget of steps, and drops all states if they exceed
// the limit of memory.
func (g *Grammar) begins() {
	g.steps = stepsPerMask
	if g.bytes > maxGrammarBytes {
		g.reset()
	}
}

// first returns the state at the start of a text.
func (g *Grammar) first() (*state, error) {
	g.begins()
	return g.closure([]place{{g.begin, nil}})
}

// adopt returns the cached state for s. If there is none, it adds s to the cache.
func (g *Grammar) adopt(s *state) *state {
	if s.age == g.age {
		return s
	}
	g.heads, g.ends = g.heads[:0], s.ends
	known := map[*frame]*frame{}
	for _, h := range s.heads {
		h.frame = g.adoptFrame(h.frame, known)
		if h.lang != nil {
			h.lang = g.langState(h.at, h.lang.State)
			h.q = h.lang.serial
		}
		g.heads = append(g.heads, h)
	}
	return g.intern()
}

func (g *Grammar) adoptFrame(f *frame, known map[*frame]*frame) *frame {
	var chain []*frame
	for ; f != nil && known[f] == nil; f = f.parent {
		chain = append(chain, f)
	}
	parent := known[f]
	for i := len(chain) - 1; i >= 0; i-- {
		key := chain[i].frameKey
		key.parent = parent
		parent = g.frame(key)
		known[chain[i]] = parent
	}
	return parent
}

func (g *Grammar) frame(key frameKey) *frame {
	f := g.frames[key]
	if f == nil {
		g.serial++
		f = &frame{key, g.serial}
		g.frames[key] = f
		g.bytes += 120
	}
	return f
}

// closure returns the state of all terminals that can be read from places.
func (g *Grammar) closure(places []place) (*state, error) {
	g.heads, g.ends = g.heads[:0], false
	g.work = append(g.work[:0], places...)
	if err := g.close(); err != nil {
		return nil, err
	}
	return g.intern(), nil
}

// close follows the places of g.work up to terminals, which become heads.
func (g *Grammar) close() error {
	clear(g.visited)
	for len(g.work) > 0 {
		p := g.work[len(g.work)-1]
		g.work = g.work[:len(g.work)-1]
		if g.steps--; g.steps < 0 || len(g.heads) > maxHeads {
			return errTooAmbiguous
		}
		o := &g.ops[p.at]
		if o.kind == opTerm {
			g.heads = append(g.heads, g.firstHead(p, g.terms[o.arg]))
			continue
		}
		if _, ok := g.visited[p]; ok {
			continue
		}
		g.visited[p] = struct{}{}
		g.follow(o, p.frame)
	}
	return nil
}

// follow adds the places after an operation that reads nothing.
func (g *Grammar) follow(o *op, f *frame) {
	switch o.kind {
	case opReturn:
		if f == nil {
			g.ends = true
			return
		}
		g.work = append(g.work, place{f.next, f.parent})
	case opCall:
		if o.next == Return && f != nil && f.loop == noLoop {
			g.work = append(g.work, place{g.rules[o.arg], f}) // a tail call needs no frame
			return
		}
		g.work = append(g.work, place{g.rules[o.arg], g.frame(frameKey{o.next, noLoop, 0, f})})
	case opSplit:
		for i := len(o.alts) - 1; i >= 0; i-- {
			g.work = append(g.work, place{o.alts[i], f})
		}
	case opEnter:
		g.work = append(g.work, place{g.loops[o.arg].body, g.frame(frameKey{Fail, o.arg, 0, f})})
	case opBack:
		l := &g.loops[o.arg]
		n := f.count + 1
		if l.max < 0 || n < l.max {
			again := n
			if l.max < 0 {
				again = min(n, l.min)
			}
			g.work = append(g.work, place{l.body, g.frame(frameKey{Fail, o.arg, again, f.parent})})
		}
		if n >= l.min {
			g.work = append(g.work, place{l.next, f.parent})
		}
	}
}

// intern returns the state of g.heads and g.ends.
func (g *Grammar) intern() *state {
	slices.SortFunc(g.heads, compareHeads)
	g.heads = g.prune(slices.Compact(g.heads))
	g.key = g.key[:0]
	for _, h := range g.heads {
		g.key = binary.LittleEndian.AppendUint32(g.key, uint32(h.at))
		g.key = binary.LittleEndian.AppendUint64(g.key, uint64(h.q))
		serial := uint32(0)
		if h.frame != nil {
			serial = h.frame.serial
		}
		g.key = binary.LittleEndian.AppendUint32(g.key, serial)
	}
	if g.ends {
		g.key = append(g.key, 1)
	}
	if s := g.states[string(g.key)]; s != nil {
		return s
	}
	s := &state{heads: slices.Clone(g.heads), ends: g.ends, age: g.age}
	g.states[string(g.key)] = s
	g.bytes += 160 + 24*len(s.heads) + len(g.key)
	return s
}

func compareHeads(a, b head) int {
	if a.at != b.at {
		return int(a.at) - int(b.at)
	}
	if a.q != b.q {
		if a.q < b.q {
			return -1
		}
		return 1
	}
	serial := func(f *frame) int {
		if f == nil {
			return 0
		}
		return int(f.serial)
	}
	return serial(a.frame) - serial(b.frame)
}

// step returns the state after byte b, or nil if b is not allowed.
func (g *Grammar) step(s *state, b byte) (*state, error) {
	for i := range s.next {
		if s.next[i].b == b {
			return s.next[i].to, nil
		}
	}
	g.heads, g.ends, g.work = g.heads[:0], false, g.work[:0]
	g.steps -= len(s.heads)
	for _, h := range s.heads {
		o := &g.ops[h.at]
		t := g.terms[o.arg]
		if t.lang != nil {
			g.stepLanguage(h, t, b)
			continue
		}
		q := t.step(h.q, b)
		if q == dead {
			continue
		}
		if t.accepts(q) {
			g.work = append(g.work, place{o.next, h.frame})
		}
		if t.continues(q) {
			g.heads = append(g.heads, head{at: h.at, q: q, frame: h.frame})
		}
	}
	var to *state
	if len(g.heads)+len(g.work) > 0 {
		if err := g.close(); err != nil {
			return nil, err
		}
		to = g.intern()
		if g.steps < 0 {
			return nil, errTooAmbiguous
		}
	}
	s.next = append(s.next, edge{b, to})
	g.bytes += 16
	return to, nil
}
