package tensor

// Memory that a pass needs goes round: gradients, scratch, and the tensors made within
// [Tape.Within]. A training loop whose batches have one shape allocates nothing once it
// has been through a step.

// shelf is spare memory of one length.
type shelf struct {
	free [][]float32
	pass int // the last in which any of it was used
}

// Within runs f, whose tensors' memory the tape takes back as soon as Backward or Reset
// is done with them: their numbers are not to be read after that. Only what f returns
// keeps them, as tensors do that are made outside of Within.
func (tp *Tape) Within(f func() *Tensor) *Tensor {
	tp.scope++
	defer func() { tp.scope-- }()
	out := f()
	if out != nil && out.tape == tp {
		out.root().lent = false
	}
	return out
}

// root is the tensor whose memory t shows.
func (t *Tensor) root() *Tensor {
	for t.base != nil {
		t = t.base
	}
	return t
}

// lend marks t as made within Within.
func (tp *Tape) lend(t *Tensor) {
	t.lent = true
	tp.lent = append(tp.lent, t)
}

// takeBack takes the memory of t if it is the tape's.
func (tp *Tape) takeBack(t *Tensor) {
	if t.lent {
		tp.giveBack(t.data)
		t.data, t.lent = nil, false
	}
}

// borrow is scratch memory of n elements, not zeroed; giveBack returns it.
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
		s = &shelf{}
		tp.spare[len(buf)] = s
	}
	s.pass = tp.pass
	s.free = append(s.free, buf)
}

// tidy ends a pass: what was lent in it comes back, and what no pass has used for a while
// goes.
func (tp *Tape) tidy() {
	const passes = 3
	for i, t := range tp.lent {
		tp.takeBack(t)
		tp.lent[i] = nil
	}
	tp.lent = tp.lent[:0]
	for n, s := range tp.spare {
		if tp.pass-s.pass > passes {
			delete(tp.spare, n)
		}
	}
}

// recycle takes back t's gradient.
func (tp *Tape) recycle(t *Tensor) {
	if t.param == nil {
		tp.giveBack(t.grad)
		t.grad = nil
	}
}

// gradient returns the slice in which t's gradient is summed, or nil if t needs none.
func (tp *Tape) gradient(t *Tensor) []float32 {
	g, add := tp.into(t)
	if !add {
		clear(g)
	}
	return g
}

// into is gradient where the first who adds may as well set: without add g holds
// anything, and all of it must be written.
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
		return t.param.gradient()
	case t.grad == nil:
		t.grad = tp.borrow(len(t.data))
		return t.grad, false
	}
	return t.grad, true
}

// hand adds an operation's gradient to an input's as it is. Where it is the input's
// first the buffer itself moves, and the operation must not read it again.
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
