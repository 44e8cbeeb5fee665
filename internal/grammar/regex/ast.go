package regex

import "github.com/heftai/heft/internal/grammar/dfa"

type kind uint8

const (
	class kind = iota
	concat
	alt
	repeat
	begin // ^
	end   // $
	look  // (?=…), (?!…)
)

// node is a part of an expression.
type node struct {
	kind     kind
	ranges   []dfa.Range // of a class
	min, max int         // of a repetition
	from, to int         // position of its quantifier
	negative bool        // of a lookahead
	subs     []*node
}

// has reports whether n or a part of it is of kind k.
func (n *node) has(k kind) bool {
	if n.kind == k {
		return true
	}
	for _, s := range n.subs {
		if s.has(k) {
			return true
		}
	}
	return false
}

// An encoder encodes one character of ranges.
type encoder func(ranges []dfa.Range) *dfa.Expr

// anchors are the expressions that ^ and $ read. nil means that they are not allowed.
type anchors struct{ begin, end *dfa.Expr }

// expr returns the expression of n.
func (n *node) expr(encode encoder, a *anchors) (*dfa.Expr, error) {
	switch n.kind {
	case class:
		return encode(n.ranges), nil
	case begin, end:
		if a == nil {
			return nil, errorf("^ and $ are supported at the ends only")
		}
		if n.kind == begin {
			return a.begin, nil
		}
		return a.end, nil
	case look:
		return nil, errorf("lookahead is supported at the beginning only")
	}
	subs := make([]*dfa.Expr, len(n.subs))
	for i, s := range n.subs {
		var err error
		if subs[i], err = s.expr(encode, a); err != nil {
			return nil, err
		}
	}
	switch n.kind {
	case alt:
		return dfa.Alt(subs...), nil
	case repeat:
		return dfa.Repeat(subs[0], n.min, n.max), nil
	}
	return dfa.Concat(subs...), nil
}

// flat returns the parts that n reads in order.
func (n *node) flat() []*node {
	if n.kind != concat {
		return []*node{n}
	}
	var list []*node
	for _, s := range n.subs {
		list = append(list, s.flat()...)
	}
	return list
}
