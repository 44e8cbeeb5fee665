package tensor

import (
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/meta"
)

// Parameter is an array that training changes: values of a shape and, during a step, their
// gradient. Its [Storage] holds the values; [NewParameter] keeps them in memory.
//
// A Parameter must be used by the goroutine of one rank. An optimizer must not step it while a
// tape that uses it still has a record for Backward.
type Parameter struct {
	// Trainable says whether Backward computes a gradient. A frozen parameter takes no memory
	// beyond its values.
	Trainable bool

	shape   []int
	storage Storage
	memory  []float32 // values of a Memory storage, so that Data is cheap
	gradient
}

// NewParameter returns a trainable parameter with the values data in row-major order. It keeps
// the slice and does not copy it. Without a shape it is a vector. If data does not fill the
// shape, the first [Tape.Use] reports it.
func NewParameter(data []float32, shape ...int) *Parameter {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return NewStored(Memory(data), shape...)
}

// NewStored returns a trainable parameter whose values are in s, in row-major order. If they do
// not fill the shape, the first [Tape.Use] reports it.
func NewStored(s Storage, shape ...int) *Parameter {
	p := &Parameter{Trainable: true, shape: slices.Clone(shape)}
	p.Move(s)
	return p
}

// Shape returns the lengths of the dimensions, outermost first.
func (p *Parameter) Shape() []int { return slices.Clone(p.shape) }

// Len returns the number of elements, in memory or not.
func (p *Parameter) Len() int {
	if p.memory != nil {
		return len(p.memory)
	}
	return p.storage.Len()
}

// DType returns the dtype of the stored values. Passes compute in float32 or in the precision of
// the tape's autocast.
func (p *Parameter) DType() meta.DType { return p.storage.DType() }

// Storage returns the storage of the values.
func (p *Parameter) Storage() Storage { return p.storage }

// Move replaces the storage by s, which must already hold the values. No tape may be using p, and
// no acquired values may be in use.
func (p *Parameter) Move(s Storage) {
	p.storage = s
	p.memory, _ = s.(Memory)
}

// Data returns the values in row-major order if all of them are in memory as float32 now,
// otherwise nil. Writing to them changes the parameter. For a parameter made by [NewParameter] it
// always returns the same slice. For others the slice is valid until the storage moves the
// values: use [Parameter.Acquire].
func (p *Parameter) Data() []float32 {
	if p.memory != nil {
		return p.memory
	}
	if first, values := p.storage.Resident(); first == 0 && len(values) == p.storage.Len() {
		return values
	}
	return nil
}

// Acquire loads all values into memory as float32 and keeps them at one address until the
// matching [Parameter.Release]. With write the caller may change them. It returns an error if the
// storage cannot read them, or if write is set and the storage is read-only. For values in memory
// it costs nothing.
func (p *Parameter) Acquire(write bool) ([]float32, error) {
	if p.memory != nil {
		return p.memory, nil
	}
	values, err := p.storage.Acquire(write)
	if err != nil {
		return nil, fmt.Errorf("tensor: acquire parameter of shape %v: %w", p.shape, err)
	}
	return values, nil
}

// Release ends one [Parameter.Acquire] that had the same write. After a write it returns an error
// if the storage cannot store the change, which is then lost.
func (p *Parameter) Release(write bool) error {
	if p.memory != nil {
		return nil
	}
	if err := p.storage.Release(write); err != nil {
		return fmt.Errorf("tensor: release parameter of shape %v: %w", p.shape, err)
	}
	return nil
}

// Access calls f with all values, between [Parameter.Acquire] and [Parameter.Release]. It returns
// the first error of the three.
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

// Parameters yields p itself under an empty name, so that a bare parameter is a [Module].
func (p *Parameter) Parameters() iter.Seq2[string, *Parameter] {
	return func(yield func(string, *Parameter) bool) { yield("", p) }
}

// Module names its parameters, in an order that does not change.
type Module interface {
	Parameters() iter.Seq2[string, *Parameter]
}

// String returns the shape and whether the parameter trains.
func (p *Parameter) String() string {
	if !p.Trainable {
		return fmt.Sprintf("%v (frozen)", p.shape)
	}
	return fmt.Sprint(p.shape)
}
