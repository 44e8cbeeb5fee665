package topology

import "slices"

// A Layout assigns threads and memory to the nodes of a machine with several. Each thread keeps to
// the processors of its node, and the memory that it reads most is on its home node.
type Layout struct {
	Places []CPU         // of the threads, in order of node
	Homes  []int         // of the threads: nodes of memory
	Near   map[int][]int // of each node of Places: all nodes, the nearest first
	CPUs   map[int][]int // of each node of Places: the processors that may be used
}

// Layout returns the layout of n threads on m. It returns nil if all of them fit on one node: the
// system then places threads and memory well by itself.
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

// Keep returns the processors that thread i may use: all of its node, so that the system can choose
// the idlest. For a nil layout it returns none, which means all.
func (l *Layout) Keep(i int) []int {
	if l == nil {
		return nil
	}
	return l.CPUs[l.Places[i].Node]
}

// A Span is a range of threads, from Begin to End-1.
type Span struct{ Begin, End int }

// Helped returns the threads whose work thread i takes when it has done its own: those of its own
// node, itself included, then those of the other nodes, the nearest first. A nil layout is one node
// with all threads.
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
