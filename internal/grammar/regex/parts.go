package regex

import (
	"github.com/heftai/heft/internal/grammar/chars"
	"github.com/heftai/heft/internal/grammar/dfa"
)

// Parts returns automata over characters. src matches somewhere in exactly the texts that all of
// with read and none of without. It returns an *Error or [chars.ErrTooLarge].
func Parts(src string, budget *dfa.Budget) (with, without []*chars.Part, err error) {
	n, err := parse(src)
	if err != nil {
		return nil, nil, err
	}
	parts := n.flat()
	if len(parts) > 0 && parts[0].kind == begin {
		for len(parts) > 1 && parts[1].kind == look {
			ahead := &node{kind: concat, subs: append([]*node{{kind: begin}}, parts[1].subs[0].flat()...)}
			p, err := part(ahead, budget)
			if err != nil {
				return nil, nil, err
			}
			if parts[1].negative {
				without = append(without, p)
			} else {
				with = append(with, p)
			}
			parts = append([]*node{parts[0]}, parts[2:]...)
		}
		n = &node{kind: concat, subs: parts}
	}
	p, err := part(n, budget)
	return append(with, p), without, err
}

// part returns the automaton of the texts in which n matches somewhere.
func part(n *node, budget *dfa.Budget) (*chars.Part, error) {
	b := chars.NewBuilder(budget)
	var alts []chars.Node
	for _, parts := range n.branches() {
		at, err := appendParts(b, parts, chars.End)
		if err != nil {
			return nil, err
		}
		alts = append(alts, at)
	}
	at, err := b.Split(alts...)
	if err != nil {
		return nil, err
	}
	return b.Part(at)
}

// branches returns the alternatives of an expression that matches somewhere in a text, as ones that
// match whole texts.
func (n *node) branches() [][]*node {
	anything := &node{kind: repeat, max: dfa.Unbounded, subs: []*node{{kind: class, ranges: anyRune}}}
	subs := []*node{n}
	if n.kind == alt {
		subs = n.subs
	}
	branches := make([][]*node, len(subs))
	for i, s := range subs {
		parts := s.flat()
		if len(parts) > 0 && parts[0].kind == begin {
			parts = parts[1:]
		} else {
			parts = append([]*node{anything}, parts...)
		}
		if k := len(parts); k > 0 && parts[k-1].kind == end {
			parts = parts[:k-1]
		} else {
			parts = append(parts[:k:k], anything)
		}
		branches[i] = parts
	}
	return branches
}

// appendParts reads parts one after the other.
func appendParts(b *chars.Builder, parts []*node, next chars.Node) (chars.Node, error) {
	var err error
	for i := len(parts) - 1; i >= 0 && err == nil; i-- {
		next, err = parts[i].append(b, next)
	}
	return next, err
}

// append adds n to b, before next.
func (n *node) append(b *chars.Builder, next chars.Node) (chars.Node, error) {
	switch n.kind {
	case class:
		return b.Class(n.ranges, next)
	case concat:
		return appendParts(b, n.subs, next)
	case alt:
		alts := make([]chars.Node, len(n.subs))
		for i, s := range n.subs {
			var err error
			if alts[i], err = s.append(b, next); err != nil {
				return chars.End, err
			}
		}
		return b.Split(alts...)
	case repeat:
		return b.Repeat(n.min, n.max, func(next chars.Node) (chars.Node, error) { return n.subs[0].append(b, next) }, next)
	}
	return chars.End, errNoProgram
}
