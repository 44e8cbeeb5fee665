package tensor

import (
	"slices"
	"weak"
)

// A tape reuses the memory of a pass: gradients, scratch memory, and the tensors made within
// [Tape.Within]. If all batches have one shape, a training loop allocates nothing after its first
// step.

// spareMemory is spare memory of one length.
type spareMemory struct {
	free [][]float32
	pass int // last pass in which any of it was used
}

// Within runs f and reclaims the memory of the tensors that f makes once Backward or Reset is
// done with them. Do not read their data after that. The tensor that f returns keeps its memory,
// like tensors made outside of Within.
func (tp *Tape) Within(f func() *Tensor) *Tensor {
	tp.scope++
	defer func() { tp.scope-- }()
	out := f()
	if out != nil && out.tape == tp {
		out.root().lent = false
	}
	return out
}

// root returns the tensor that owns t's memory.
func (t *Tensor) root() *Tensor {
	for t.base != nil {
		t = t.base
	}
	return t
}

// lend marks t as made within Within.
func (tp *Tape) lend(t *Tensor) {
	t.lent = true
	if len(tp.lent) >= max(tp.prune, 1024) {
		tp.lent = slices.DeleteFunc(tp.lent, func(w weak.Pointer[Tensor]) bool { return w.Value() == nil })
		tp.prune = 2 * len(tp.lent)
	}
	tp.lent = append(tp.lent, weak.Make(t))
}

// takeBack reclaims the memory of t if the tape owns it.
func (tp *Tape) takeBack(t *Tensor) {
	if t.lent {
		tp.giveBack(t.data)
		t.data, t.lent = nil, false
	}
}

// borrow returns scratch memory of n elements, not zeroed. giveBack returns it to the tape.
func (tp *Tape) borrow(n int) []float32 {
	if s := tp.spare[n]; s != nil {
		s.pass = tp.pass
		if last := len(s.free) - 1; last >= 0 {
			buf := s.free[last]
			s.free = s.free[:last]
			return buf
		}
	}
	return make([]float32, n)
}

func (tp *Tape) giveBack(buf []float32) {
	if len(buf) == 0 {
		return
	}
	s := tp.spare[len(buf)]
	if s == nil {
		s = &spareMemory{}
		tp.spare[len(buf)] = s
	}
	s.pass = tp.pass
	s.free = append(s.free, buf)
}

// tidy ends a pass: it reclaims the memory that was lent and frees memory that no recent pass
// used.
func (tp *Tape) tidy() {
	const passes = 3
	for _, w := range tp.lent {
		if t := w.Value(); t != nil {
			tp.takeBack(t)
		}
	}
	clear(tp.lent)
	tp.lent = tp.lent[:0]
	for n, s := range tp.spare {
		if tp.pass-s.pass > passes {
			delete(tp.spare, n)
		}
	}
}

// recycle reclaims t's gradient.
func (tp *Tape) recycle(t *Tensor) {
	if t.param == nil {
		tp.giveBack(t.grad)
		t.grad = nil
	}
}

// gradient returns the slice in which t's gradient is accumulated, or nil if t needs none.
func (tp *Tape) gradient(t *Tensor) []float32 {
	g, add := tp.into(t)
	if !add {
		clear(g)
	}
	return g
}

// into is gradient for an operation that can set instead of add. If add is false, the values of g
// are undefined and the caller must write all of them.
func (tp *Tape) into(t *Tensor) (g []float32, add bool) {
	if t == nil || !t.needs {
		return nil, false
	}
	for t.base != nil && len(t.data) == len(t.base.data) {
		t = t.base
	}
	switch {
	case t.base != nil:
		return tp.gradient(t.base)[t.at : t.at+len(t.data)], true
	case t.param != nil:
		return tp.gradientOf(t.param)
	case t.grad == nil:
		t.grad = tp.borrow(len(t.data))
		return t.grad, false
	}
	return t.grad, true
}

// hand adds an operation's gradient unchanged to an input's. If the input has none yet, the
// buffer itself becomes its gradient, and the operation must not read it again.
func (tp *Tape) hand(out, in *Tensor, grad []float32) {
	for in.base != nil && len(in.data) == len(in.base.data) {
		in = in.base
	}
	if in.needs && in.base == nil && in.param == nil && in.grad == nil && len(in.data) == len(grad) {
		in.grad, out.grad = grad, nil
		return
	}
	if g := tp.gradient(in); g != nil {
		tp.add(g, grad)
	}
}
