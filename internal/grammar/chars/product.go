package chars

import (
	"slices"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// auto is an automaton over classes.
type auto struct {
	states []autoState // the first one is the start
	edges  int
}

type autoState struct {
	edges  []move
	accept bool
}

// move reads a character of some classes.
type move struct {
	classes classSet
	to      int32
}

// auto returns p over classes. of has the classes of each of p's sets.
func (p *Part) auto(of []classSet) *auto {
	a := &auto{states: make([]autoState, len(p.states))}
	for i, s := range p.states {
		a.states[i].accept = s.accept
		for _, e := range s.edges {
			a.states[i].edges = append(a.states[i].edges, move{of[e.set], e.to})
		}
		a.edges += len(s.edges)
	}
	return a
}

// product returns the automaton of the texts that both read.
func product(a, b *auto, budget *dfa.Budget) (*auto, error) {
	out := &auto{}
	ids, order := map[[2]int32]int32{{0, 0}: 0}, [][2]int32{{0, 0}}
	for i := 0; i < len(order); i++ {
		x, y := &a.states[order[i][0]], &b.states[order[i][1]]
		s := autoState{accept: x.accept && y.accept}
		if budget.Spend(20+10*len(x.edges)*len(y.edges)) != nil {
			return nil, ErrTooLarge
		}
		for j := range x.edges {
			for k := range y.edges {
				both := x.edges[j].classes.and(&y.edges[k].classes)
				if both.empty() {
					continue
				}
				pair := [2]int32{x.edges[j].to, y.edges[k].to}
				id, ok := ids[pair]
				if !ok {
					id = int32(len(order))
					ids[pair] = id
					order = append(order, pair)
				}
				s.edges = append(s.edges, move{both, id})
			}
		}
		if out.edges += len(s.edges); out.edges > maxEdges || len(order) > maxStates || budget.Spend(100*len(s.edges)) != nil {
			return nil, ErrTooLarge
		}
		out.states = append(out.states, s)
	}
	return out.trim(budget)
}

// trim drops the edges to states from which no text ends.
func (a *auto) trim(budget *dfa.Budget) (*auto, error) {
	if err := budget.Spend(20 * (a.edges + len(a.states))); err != nil {
		return nil, err
	}
	from := make([][]int32, len(a.states))
	var work []int32
	ends := make([]bool, len(a.states))
	for i, s := range a.states {
		for _, e := range s.edges {
			from[e.to] = append(from[e.to], int32(i))
		}
		if s.accept {
			ends[i] = true
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range from[at] {
			if !ends[p] {
				ends[p] = true
				work = append(work, p)
			}
		}
	}
	a.edges = 0
	for i := range a.states {
		a.states[i].edges = slices.DeleteFunc(a.states[i].edges, func(m move) bool { return !ends[m.to] })
		a.edges += len(a.states[i].edges)
	}
	return a, nil
}

// complement returns the automaton of the texts of all classes that a does not read.
func (a *auto) complement(classes int, budget *dfa.Budget) (*auto, error) {
	out := &auto{}
	ids, order := map[string]int32{}, [][]int32(nil)
	state := func(set []int32) int32 {
		key := string(appendInts(nil, set))
		id, ok := ids[key]
		if !ok {
			id = int32(len(order))
			ids[key] = id
			order = append(order, set)
		}
		return id
	}
	state([]int32{0})
	for i := 0; i < len(order); i++ {
		s := autoState{accept: true}
		steps := classes
		for _, at := range order[i] {
			s.accept = s.accept && !a.states[at].accept
			steps += len(a.states[at].edges)
		}
		if budget.Spend(50*steps) != nil || len(order) > maxStates || out.edges > maxEdges {
			return nil, ErrTooLarge
		}
		at := map[int32]int{} // the edge to a state
		for k := range classes {
			to := state(a.read(order[i], k))
			if _, ok := at[to]; !ok {
				at[to] = len(s.edges)
				s.edges = append(s.edges, move{to: to})
			}
			s.edges[at[to]].classes.add(k)
		}
		out.edges += len(s.edges)
		out.states = append(out.states, s)
	}
	return out.trim(budget)
}

// read returns the states after a character of class k, in order.
func (a *auto) read(set []int32, k int) []int32 {
	var to []int32
	for _, at := range set {
		for i := range a.states[at].edges {
			if e := &a.states[at].edges[i]; e.classes.has(k) {
				to = append(to, e.to)
			}
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}
