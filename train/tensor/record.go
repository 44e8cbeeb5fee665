package tensor

import (
	"cmp"
	"slices"
	"weak"
)

// history counts the operations of a tape. The operations themselves are only reachable from
// their results, so that the garbage collector frees those of a result that the caller drops.
type history struct {
	seq   int // number of operations
	open  int // operations since the last pass ended that are not freed
	epoch int // number of passes that ended
	frees []weak.Pointer[node]
}

// node is a recorded operation. back reads out's gradient and adds to those of ins.
type node struct {
	out     *Tensor
	ins     []*Tensor // that need a gradient, or whose values are not always in memory
	back    func(grad []float32)
	seq     int
	epoch   int
	waiting int    // operations on out that are not reversed yet
	once    string // the name of an operation that can be reversed only once
	ran     bool
	free    func()
}

// record records the reverse of out's operation, if out needs a gradient.
func (tp *Tape) record(out *Tensor, back func(grad []float32)) *Tensor {
	if !out.needs {
		return out
	}
	tp.seq++
	tp.open++
	n := &node{out: out, ins: out.ins, back: back, seq: tp.seq, epoch: tp.epoch}
	out.node, out.ins = n, nil
	for _, in := range n.ins {
		if from := in.root().node; from != nil {
			from.waiting++
		}
	}
	return out
}

// recordOnce is record for an operation that can be reversed only once.
func (tp *Tape) recordOnce(name string, out *Tensor, back func(grad []float32)) *Tensor {
	tp.record(out, back)
	if out.node != nil {
		out.node.once = name
	}
	return out
}

// keepFree calls free when out's record is freed.
func (tp *Tape) keepFree(out *Tensor, free func()) {
	switch {
	case free == nil:
	case out.node == nil:
		free()
	default:
		out.node.free = free
		tp.frees = slices.DeleteFunc(tp.frees, func(w weak.Pointer[node]) bool { return w.Value() == nil })
		tp.frees = append(tp.frees, weak.Make(out.node))
	}
}

// reversed reports whether the operation that made t is reversed and freed.
func (t *Tensor) reversed() bool {
	n := t.root().node
	return n != nil && n.back == nil
}

// reached returns the operations that t depends on, the last one first.
func (t *Tensor) reached() []*node {
	var all []*node
	seen := map[*node]bool{}
	todo := []*node{t.root().node}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || n.back == nil || seen[n] {
			continue
		}
		seen[n] = true
		all = append(all, n)
		for _, in := range n.ins {
			todo = append(todo, in.root().node)
		}
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(b.seq, a.seq) })
	return all
}

// unwind reverses operations. It frees those on which no unreversed operation depends.
func (tp *Tape) unwind(all []*node) {
	tp.opaque = tp.opaque || len(all) < tp.open // another loss may add to the gradients
	for i, n := range all {
		if tp.err != nil {
			return
		}
		if n.ran && n.once != "" {
			tp.fail("backward: %s is reversed already, for another loss: reverse the sum of the losses once, or compute it for each", n.once)
			return
		}
		if n.out.grad != nil {
			n.ran, tp.reversing = true, n.seq
			n.back(n.out.grad)
			tp.recycle(n.out)
		}
		if n.waiting == 0 {
			tp.drop(n)
		}
		before := 0
		if i+1 < len(all) {
			before = all[i+1].seq
		}
		tp.report(before)
	}
}

// drop frees an operation.
func (tp *Tape) drop(n *node) {
	for _, in := range n.ins {
		if from := in.root().node; from != nil {
			from.waiting--
		}
	}
	tp.takeBack(n.out)
	if n.epoch == tp.epoch {
		tp.open--
	}
	if n.free != nil {
		n.free()
	}
	n.back, n.ins, n.free = nil, nil, nil
}

// discard frees the Functions that are not reversed.
func (tp *Tape) discard() {
	tp.open = 0
	for _, w := range tp.frees {
		if n := w.Value(); n != nil && n.free != nil {
			n.free()
			n.free = nil
		}
	}
	clear(tp.frees)
	tp.frees = tp.frees[:0]
}

// reacquire loads parameters that a pass released, for operations that a later Backward reverses.
func (tp *Tape) reacquire(all []*node) {
	for _, n := range all {
		for _, in := range n.ins {
			tp.restore(in)
		}
	}
}

// restore makes the data of a released parameter's tensor, or of a view of it, valid again.
func (tp *Tape) restore(t *Tensor) {
	if t.base != nil {
		tp.restore(t.base)
		if t.root().param != nil {
			n := len(t.data)
			t.data = t.base.data[t.at : t.at+n : t.at+n]
		}
		return
	}
	if !t.released || tp.err != nil {
		return
	}
	data, err := t.param.Acquire(false)
	if err != nil {
		tp.fail("backward: %w", err)
		return
	}
	t.data, t.released = data, false
	tp.acquired = append(tp.acquired, t)
}

// forget leaves lent memory to the garbage collector.
func (tp *Tape) forget() {
	for _, w := range tp.lent {
		if t := w.Value(); t != nil {
			t.lent = false
		}
	}
	clear(tp.lent)
	tp.lent = tp.lent[:0]
}
