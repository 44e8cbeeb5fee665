package tensor

import (
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/meta"
)

// Parameter is an array that training changes: numbers of a shape and, while a step is being made,
// their gradient. Where the numbers are is up to its [Storage]. [NewParameter] keeps them in memory.
//
// A Parameter belongs to the goroutine of one rank. An optimizer must not step it while a tape
// that uses it has a record that is to be reversed.
type Parameter struct {
	// Trainable is whether Backward computes a gradient. A frozen parameter costs no memory beyond
	// its numbers.
	Trainable bool

	shape   []int
	storage Storage
	memory  []float32 // of a Memory storage, so that Data costs nothing
	grad    []float32
	spare   []float32 // the gradient that was dropped, to use again
}

// NewParameter makes a trainable parameter whose numbers are data, in memory, rows last. It keeps
// the slice and does not copy it. Without a shape it is a vector. If data does not fill the shape,
// the first [Tape.Use] reports it.
func NewParameter(data []float32, shape ...int) *Parameter {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return NewStored(Memory(data), shape...)
}

// NewStored makes a trainable parameter whose numbers are in s.
func NewStored(s Storage, shape ...int) *Parameter {
	p := &Parameter{Trainable: true, shape: slices.Clone(shape)}
	p.Move(s)
	return p
}

// Shape returns the lengths of the dimensions, outermost first.
func (p *Parameter) Shape() []int { return slices.Clone(p.shape) }

// Len returns the number of elements, whether they are in memory or not.
func (p *Parameter) Len() int {
	if p.memory != nil {
		return len(p.memory)
	}
	return p.storage.Len()
}

// DType returns what the numbers are stored as. Passes compute with them in float32 or as the tape
// casts them.
func (p *Parameter) DType() meta.DType { return p.storage.DType() }

// Storage returns where the numbers are.
func (p *Parameter) Storage() Storage { return p.storage }

// Move makes s the place of the numbers, which it must hold already. No tape may be using p, and
// nothing that was acquired may be in use.
func (p *Parameter) Move(s Storage) {
	p.storage = s
	p.memory, _ = s.(Memory)
}

// Data returns the numbers, rows last, if all of them are in memory as float32 now, else nil.
// Writing to them changes the parameter. For parameters of [NewParameter] it is always the same
// slice; for others it is valid until the storage moves them: use [Parameter.Acquire].
func (p *Parameter) Data() []float32 {
	if p.memory != nil {
		return p.memory
	}
	if first, values := p.storage.Resident(); first == 0 && len(values) == p.storage.Len() {
		return values
	}
	return nil
}

// Acquire brings all numbers into memory as float32 and keeps them at one address until the
// matching [Parameter.Release]. With write the caller may change them. It fails if the storage
// cannot read them, and at once if it does not allow write. In memory it costs nothing.
func (p *Parameter) Acquire(write bool) ([]float32, error) {
	if p.memory != nil {
		return p.memory, nil
	}
	values, err := p.storage.Acquire(write)
	if err != nil {
		return nil, fmt.Errorf("tensor: a parameter of shape %v: %w", p.shape, err)
	}
	return values, nil
}

// Release ends one [Parameter.Acquire], with the same write. After a write it fails if the storage
// cannot keep the change, which is then lost.
func (p *Parameter) Release(write bool) error {
	if p.memory != nil {
		return nil
	}
	if err := p.storage.Release(write); err != nil {
		return fmt.Errorf("tensor: a parameter of shape %v: %w", p.shape, err)
	}
	return nil
}

// Access calls f with all numbers, between [Parameter.Acquire] and [Parameter.Release]. It returns the
// first error of the three.
func (p *Parameter) Access(write bool, f func(values []float32) error) error {
	values, err := p.Acquire(write)
	if err != nil {
		return err
	}
	err = f(values)
	if e := p.Release(write); err == nil {
		err = e
	}
	return err
}

// Grad returns the sum of the gradients since it was dropped: as many float32 as the parameter has
// elements, or nil until a Backward reaches the parameter. The slice is the parameter's own, until
// ZeroGrad, TakeGrad or SetGrad. Optimizers and averaging may change its numbers.
func (p *Parameter) Grad() []float32 { return p.grad }

// SetGrad makes g, which p keeps, the gradient; nil is none. Tapes report a gradient of another
// length than the parameter.
func (p *Parameter) SetGrad(g []float32) { p.grad = g }

// TakeGrad returns the gradient and leaves none. Its memory is the caller's.
func (p *Parameter) TakeGrad() []float32 {
	g := p.grad
	p.grad = nil
	return g
}

// ZeroGrad drops the gradient. The next Backward makes a new one in the same memory.
func (p *Parameter) ZeroGrad() {
	if p.grad != nil {
		p.grad, p.spare = nil, p.grad
	}
}

// NewGrad returns zeros for a gradient that is not yet the parameter's. It uses the memory of one
// that was dropped, if there is one.
func (p *Parameter) NewGrad() []float32 {
	g := p.takeSpare(p.Len())
	if g == nil {
		return make([]float32, p.Len())
	}
	clear(g)
	return g
}

// takeSpare returns the memory of a dropped gradient of n elements, or nil.
func (p *Parameter) takeSpare(n int) []float32 {
	g := p.spare
	p.spare = nil
	if len(g) != n {
		return nil
	}
	return g
}

// gradient returns the gradient that a pass adds to, or, with add false, new memory that it sets.
func (p *Parameter) gradient() (g []float32, add bool) {
	if p.grad != nil {
		return p.grad, true
	}
	if p.grad = p.takeSpare(p.Len()); p.grad == nil {
		p.grad = make([]float32, p.Len())
	}
	return p.grad, false
}

// Parameters makes a bare parameter a [Module], whose only name is empty.
func (p *Parameter) Parameters() iter.Seq2[string, *Parameter] {
	return func(yield func(string, *Parameter) bool) { yield("", p) }
}

// Module has parameters under names, in an order that does not change.
type Module interface {
	Parameters() iter.Seq2[string, *Parameter]
}

// String shows the shape and whether the parameter trains.
func (p *Parameter) String() string {
	if !p.Trainable {
		return fmt.Sprintf("%v (frozen)", p.shape)
	}
	return fmt.Sprint(p.shape)
}
