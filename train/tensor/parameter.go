package tensor

import (
	"fmt"
	"iter"
	"slices"
)

// Parameter is an array that training changes. Optimizers write Data and set Grad to nil
// between passes; a tape that is using the parameter must be done with it.
type Parameter struct {
	// Data is the numbers, rows last. Its length never changes.
	Data []float32
	// Grad is the sum of the gradients since it was nil; nil until a Backward reaches
	// the parameter.
	Grad []float32
	// Trainable is whether Backward computes Grad. A frozen parameter costs no memory
	// beyond Data.
	Trainable bool

	shape []int
	spare []float32 // the gradient that was dropped, to use again
}

// NewParameter makes a trainable parameter of data, which it keeps. No shape stands for
// a vector. Where data does not fill the shape the first [Tape.Use] says so.
func NewParameter(data []float32, shape ...int) *Parameter {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return &Parameter{Data: data, Trainable: true, shape: slices.Clone(shape)}
}

// Shape is the lengths of the dimensions, outermost first.
func (p *Parameter) Shape() []int { return slices.Clone(p.shape) }

// ZeroGrad drops the gradient: the next Backward starts it anew, in the same memory.
func (p *Parameter) ZeroGrad() {
	if p.Grad != nil {
		p.Grad, p.spare = nil, p.Grad
	}
}

// NewGrad is zeros for a gradient, not yet the parameter's: in the memory of one that was
// dropped, where there is one.
func (p *Parameter) NewGrad() []float32 {
	g := p.spare
	p.spare = nil
	if len(g) != len(p.Data) {
		return make([]float32, len(p.Data))
	}
	clear(g)
	return g
}

// gradient is Grad, which the caller adds to, or without add new memory, which it sets.
func (p *Parameter) gradient() (g []float32, add bool) {
	if p.Grad != nil {
		return p.Grad, true
	}
	p.Grad, p.spare = p.spare, nil
	if len(p.Grad) != len(p.Data) {
		p.Grad = make([]float32, len(p.Data))
	}
	return p.Grad, false
}

// Parameters makes a bare parameter a [Module], whose only name is empty.
func (p *Parameter) Parameters() iter.Seq2[string, *Parameter] {
	return func(yield func(string, *Parameter) bool) { yield("", p) }
}

// Module has parameters under names, in an order that does not change.
type Module interface {
	Parameters() iter.Seq2[string, *Parameter]
}

// Use brings p onto the tape, the same tensor however often. The numbers are p's own,
// not a copy.
func (tp *Tape) Use(p *Parameter) *Tensor {
	switch {
	case tp.err != nil:
		return tp.void()
	case p == nil:
		return tp.fail("use: no parameter")
	case !sized(p.shape, len(p.Data)):
		return tp.fail("use: a parameter of shape %v with %d numbers", p.shape, len(p.Data))
	case p.Grad != nil && len(p.Grad) != len(p.Data):
		return tp.fail("use: a parameter of %d numbers with a gradient of %d", len(p.Data), len(p.Grad))
	}
	key := used{p, tp.recording() && p.Trainable}
	if t := tp.uses[key]; t != nil {
		return t
	}
	t := &Tensor{tape: tp, data: p.Data, shape: slices.Clone(p.shape), param: p, needs: key.needs, pass: tp.pass}
	tp.uses[key] = t
	return t
}

// used keys the tensors of parameters: one within NoGrad needs no gradient.
type used struct {
	p     *Parameter
	needs bool
}

// String shows the shape and whether the parameter trains.
func (p *Parameter) String() string {
	if !p.Trainable {
		return fmt.Sprintf("%v (frozen)", p.shape)
	}
	return fmt.Sprint(p.shape)
}
