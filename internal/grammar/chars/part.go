package chars

import (
	"fmt"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// ErrTooLarge means that a language exceeds its limits of time or memory.
var ErrTooLarge = dfa.ErrTooLarge

// Limits of one automaton.
const (
	maxStates = 1 << 15
	maxEdges  = 1 << 18
)

// A Part is an automaton over characters. It does not change.
type Part struct {
	sets   [][]dfa.Range // of the edges
	states []partState   // the first one is the start
}

type partState struct {
	edges  []edge
	accept bool
}

// edge reads a character of a set.
type edge struct{ set, to int32 }

// A Node is a position of an automaton that a [Builder] makes.
type Node int32

// End is the node at which a text ends.
const End Node = 0

// A Builder makes a part from its end to its start. Each method takes the following node and returns
// the node at which its own piece starts.
type Builder struct {
	nodes  []node
	sets   [][]dfa.Range
	index  map[string]int32
	budget *dfa.Budget
}

// node reads a character of a set, or continues at its alternatives.
type node struct {
	set  int32 // noSet: alternatives
	next Node
	alts []Node
}

const noSet int32 = -1

// NewBuilder returns an empty builder.
func NewBuilder(budget *dfa.Budget) *Builder {
	return &Builder{nodes: make([]node, 1), index: map[string]int32{}, budget: budget}
}

func (b *Builder) add(n node) (Node, error) {
	if b.budget.Spend(100) != nil || len(b.nodes) >= maxEdges {
		return End, ErrTooLarge
	}
	b.nodes = append(b.nodes, n)
	return Node(len(b.nodes) - 1), nil
}

// Class reads one character of ranges.
func (b *Builder) Class(ranges []dfa.Range, next Node) (Node, error) {
	return b.add(node{set: b.set(ranges), next: next})
}

func (b *Builder) set(ranges []dfa.Range) int32 {
	key := fmt.Sprint(ranges)
	id, ok := b.index[key]
	if !ok {
		id = int32(len(b.sets))
		b.sets = append(b.sets, dfa.Normalise(ranges))
		b.index[key] = id
	}
	return id
}

// Split continues at any of the alternatives. Without one, nothing matches.
func (b *Builder) Split(alts ...Node) (Node, error) { return b.add(node{set: noSet, alts: alts}) }

// Repeat reads the piece that body makes from least to most times. most may be [dfa.Unbounded].
func (b *Builder) Repeat(least, most int, body func(next Node) (Node, error), next Node) (Node, error) {
	at, err := next, error(nil)
	if most == dfa.Unbounded {
		if at, err = b.Split(next); err != nil {
			return End, err
		}
		begin, err := body(at)
		if err != nil {
			return End, err
		}
		b.nodes[at].alts = append(b.nodes[at].alts, begin)
	}
	for i := least; i < most; i++ {
		begin, err := body(at)
		if err != nil {
			return End, err
		}
		if at, err = b.Split(begin, next); err != nil {
			return End, err
		}
	}
	for range least {
		if at, err = body(at); err != nil {
			return End, err
		}
	}
	return at, nil
}

// Part returns the automaton that starts at begin.
func (b *Builder) Part(begin Node) (*Part, error) {
	p := &Part{sets: b.sets}
	ids := map[Node]int32{}
	var order []Node
	state := func(n Node) (int32, error) {
		id, ok := ids[n]
		if !ok {
			if id = int32(len(order)); id >= maxStates {
				return 0, ErrTooLarge
			}
			ids[n] = id
			order = append(order, n)
		}
		return id, nil
	}
	if _, err := state(begin); err != nil {
		return nil, err
	}
	total := 0
	seen := make([]int32, len(b.nodes)) // the state that reached a node last, counted from 1
	for i := 0; i < len(order); i++ {
		reads, ends, err := b.closure(order[i], seen, int32(i+1))
		if err != nil {
			return nil, err
		}
		s := partState{accept: ends}
		for _, r := range reads {
			to, err := state(b.nodes[r].next)
			if err != nil {
				return nil, err
			}
			s.edges = append(s.edges, edge{b.nodes[r].set, to})
		}
		if total += len(reads); total > maxEdges {
			return nil, ErrTooLarge
		}
		p.states = append(p.states, s)
	}
	return p, nil
}

// closure returns the nodes that read a character and that can be reached from n without one.
func (b *Builder) closure(n Node, seen []int32, mark int32) (reads []Node, ends bool, err error) {
	work := []Node{n}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[at] == mark {
			continue
		}
		seen[at] = mark
		if err := b.budget.Spend(20); err != nil {
			return nil, false, err
		}
		switch o := &b.nodes[at]; {
		case at == End:
			ends = true
		case o.set != noSet:
			reads = append(reads, at)
		default:
			work = append(work, o.alts...)
		}
	}
	return reads, ends, nil
}
