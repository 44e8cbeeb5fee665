package regex

import "github.com/heftai/heft/internal/grammar/dfa"

// Sizes above these are not told apart.
const (
	maxWeight = 1 << 20
	maxLength = 1 << 30
)

// weight returns the approximate number of steps of the automaton of n.
func (n *node) weight() int {
	const wide = 4 // of ranges beyond ASCII
	size := 1
	switch n.kind {
	case class:
		for _, r := range n.ranges {
			if size++; r.Hi > 0x7F {
				size += wide
			}
		}
	case repeat:
		size = n.subs[0].weight() * max(n.min, n.max, 1)
	default:
		for _, s := range n.subs {
			size = min(size+s.weight(), maxWeight)
		}
	}
	return min(size, maxWeight)
}

// lengths returns the numbers of characters of the shortest and the longest text of n. longest is
// [dfa.Unbounded] without a limit.
func (n *node) lengths() (shortest, longest int) {
	switch n.kind {
	case class:
		return 1, 1
	case concat:
		for _, s := range n.subs {
			least, most := s.lengths()
			shortest, longest = min(shortest+least, maxLength), plus(longest, most)
		}
	case alt:
		for i, s := range n.subs {
			least, most := s.lengths()
			if i == 0 {
				shortest, longest = least, most
				continue
			}
			shortest = min(shortest, least)
			if longest == dfa.Unbounded || most == dfa.Unbounded {
				longest = dfa.Unbounded
			} else {
				longest = max(longest, most)
			}
		}
	case repeat:
		least, most := n.subs[0].lengths()
		shortest = min(least*n.min, maxLength)
		switch {
		case most == 0 || n.max == 0:
		case most == dfa.Unbounded || n.max == dfa.Unbounded:
			longest = dfa.Unbounded
		default:
			longest = min(most*n.max, maxLength)
		}
	}
	return shortest, longest
}

func plus(a, b int) int {
	if a == dfa.Unbounded || b == dfa.Unbounded {
		return dfa.Unbounded
	}
	return min(a+b, maxLength)
}

// nodes returns the number of parts of n, at all depths.
func (n *node) nodes() int {
	count := 1
	for _, s := range n.subs {
		count += s.nodes()
	}
	return count
}

// nonEmpty returns an expression of the texts of n that are not empty, or nil if there are none. n
// has no lookahead and no anchors.
func (n *node) nonEmpty() *node {
	if shortest, _ := n.lengths(); shortest > 0 {
		return n
	}
	switch n.kind {
	case alt:
		return either(n.subs, func(i int) *node { return n.subs[i].nonEmpty() })
	case concat: // the first part that is not empty, then the others
		return either(n.subs, func(i int) *node {
			first := n.subs[i].nonEmpty()
			if first == nil {
				return nil
			}
			return &node{kind: concat, subs: append([]*node{first}, n.subs[i+1:]...)}
		})
	case repeat:
		body := n.subs[0].nonEmpty()
		if body == nil || n.max == 0 {
			return nil
		}
		return &node{kind: repeat, min: 1, max: n.max, subs: []*node{body}}
	}
	return nil
}

// either returns an alternative of what make returns for each part.
func either(parts []*node, make func(i int) *node) *node {
	var subs []*node
	for i := range parts {
		if n := make(i); n != nil {
			subs = append(subs, n)
		}
	}
	if subs == nil {
		return nil
	}
	return &node{kind: alt, subs: subs}
}
