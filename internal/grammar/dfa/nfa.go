package dfa

import "errors"

// ErrTooLarge means that an automaton exceeds its budget.
var ErrTooLarge = errors.New("dfa: the expression is too large")

// A Budget limits the work of the calls that share it, in steps of about a nanosecond, and the
// states of one automaton. It is for use by one goroutine.
type Budget struct {
	Steps  int
	States int
}

// spend uses n steps.
func (b *Budget) spend(n int) error {
	if b.Steps -= n; b.Steps < 0 {
		return ErrTooLarge
	}
	return nil
}

// Spend uses n steps. It returns [ErrTooLarge] if fewer are left.
func (b *Budget) Spend(n int) error { return b.spend(n) }

// nfaNode is a node of a nondeterministic automaton. A node with edges reads a byte from lo to hi.
// Any other node continues at all of its alternatives without reading.
type nfaNode struct {
	reads  bool
	lo, hi byte
	next   int32
	alts   []int32
}

// Limits of the memory of one automaton.
const (
	maxNodes = 1 << 16
	maxTable = 1 << 20 // entries of a table of steps
)

// nodeSteps is the cost of one node.
const nodeSteps = 60

type nfa struct {
	nodes  []nfaNode
	budget *Budget
}

func (n *nfa) add(node nfaNode) (int32, error) {
	if err := n.budget.spend(nodeSteps); err != nil || len(n.nodes) >= maxNodes {
		return 0, ErrTooLarge
	}
	n.nodes = append(n.nodes, node)
	return int32(len(n.nodes) - 1), nil
}

const (
	noNode  int32 = -1
	endNode int32 = 0
)

// build adds e before next and returns the node at which it starts, or noNode if e matches nothing.
func (n *nfa) build(e *Expr, next int32) (int32, error) {
	if next == noNode {
		return noNode, nil
	}
	switch e.kind {
	case kindEmpty:
		return next, nil
	case kindNone:
		return noNode, nil
	case kindByte:
		return n.add(nfaNode{reads: true, lo: e.lo, hi: e.hi, next: next})
	case kindConcat:
		var err error
		for i := len(e.subs) - 1; i >= 0 && err == nil; i-- {
			next, err = n.build(e.subs[i], next)
		}
		return next, err
	case kindAlt:
		return n.alternatives(e, next)
	}
	return n.repeat(e, next)
}

func (n *nfa) alternatives(e *Expr, next int32) (int32, error) {
	alts := make([]int32, 0, len(e.subs))
	for _, sub := range e.subs {
		at, err := n.build(sub, next)
		if err != nil {
			return noNode, err
		}
		if at != noNode {
			alts = append(alts, at)
		}
	}
	if len(alts) == 0 {
		return noNode, nil
	}
	return n.add(nfaNode{alts: alts})
}

func (n *nfa) repeat(e *Expr, next int32) (int32, error) {
	body, at := e.subs[0], next
	switch {
	case e.max == Unbounded:
		loop, err := n.add(nfaNode{alts: []int32{next}})
		if err != nil {
			return noNode, err
		}
		begin, err := n.build(body, loop)
		if err != nil {
			return noNode, err
		}
		if begin != noNode {
			n.nodes[loop].alts = append(n.nodes[loop].alts, begin)
		}
		at = loop
	default:
		for i := e.min; i < e.max; i++ {
			begin, err := n.build(body, at)
			if err != nil {
				return noNode, err
			}
			if begin == noNode {
				break
			}
			if at, err = n.add(nfaNode{alts: []int32{begin, next}}); err != nil {
				return noNode, err
			}
		}
	}
	for range e.min {
		var err error
		if at, err = n.build(body, at); err != nil || at == noNode {
			return at, err
		}
	}
	return at, nil
}
