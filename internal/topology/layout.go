package topology

import "slices"

// A Layout is where threads go on a machine of several nodes of memory: each keeps to the
// processors of its node, and what it reads most lies in its home.
type Layout struct {
	Places []CPU         // of the threads, in order of node
	Homes  []int         // of the threads: nodes of memory
	Near   map[int][]int // of each node of Places: all nodes, the nearest first
	CPUs   map[int][]int // of each node of Places: the processors that may be used
}

// Layout is how so many threads go on m; nil where they are all on one node, as then threads
// and memory are well wherever the system puts them.
func (m *Machine) Layout(threads int) *Layout {
	l := &Layout{Places: m.Places(threads), Near: map[int][]int{}, CPUs: map[int][]int{}}
	for _, p := range l.Places {
		l.Homes = append(l.Homes, m.Home(p.Node))
		if l.Near[p.Node] == nil {
			l.Near[p.Node] = m.Near(p.Node)
		}
	}
	if len(l.Near) < 2 {
		return nil
	}
	for _, c := range m.CPUs {
		if l.Near[c.Node] != nil {
			l.CPUs[c.Node] = append(l.CPUs[c.Node], c.ID)
		}
	}
	return l
}

// Keep are the processors that thread i keeps to: all of its node, among which the system puts
// it where least is going on. A nil layout has none, which is all.
func (l *Layout) Keep(i int) []int {
	if l == nil {
		return nil
	}
	return l.CPUs[l.Places[i].Node]
}

// A Span is threads in order, of which End is the first that does not belong to it.
type Span struct{ Begin, End int }

// Helped are the threads whose work thread i takes when it has done its own: those of its own
// node, which include it, then those of the others, the nearest first. A nil layout is of
// one node with all threads.
func (l *Layout) Helped(i, threads int) []Span {
	if l == nil {
		return []Span{{0, threads}}
	}
	var out []Span
	for _, node := range l.Near[l.Places[i].Node] {
		begin := slices.IndexFunc(l.Places, func(c CPU) bool { return c.Node == node })
		if begin < 0 {
			continue
		}
		end := begin
		for end < len(l.Places) && l.Places[end].Node == node {
			end++
		}
		out = append(out, Span{begin, end})
	}
	return out
}
