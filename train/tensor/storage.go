package tensor

import (
	"slices"

	"github.com/heftai/heft/meta"
)

// Storage holds the numbers of a [Parameter]: all in memory ([Memory]), a shard of them in each
// rank, in a file, or in another dtype.
//
// Tapes, models, optimizers and checkpoints reach the numbers through Acquire and Release, so that
// any Storage trains. Several parameters, also those of other ranks, may share one: its methods
// must be safe for concurrent use. A caller that acquires with write must be the only one that
// has acquired; the order of a training loop sees to that.
type Storage interface {
	// Len returns the number of elements of the whole parameter.
	Len() int
	// DType returns what the numbers are stored as.
	DType() meta.DType
	// Resident returns the elements from first on that this process has in memory as float32 now:
	// all, those of its shard, or none. The slice is valid until the next Acquire or Release.
	Resident() (first int, values []float32)
	// Acquire brings all elements into memory as float32, in the parameter's order. They stay at one
	// address until the matching Release. Acquiring is counted: several readers share one slice.
	// It may block on reads, or on other ranks that must call it too. It fails if numbers cannot be
	// read, or with write if they cannot be changed.
	Acquire(write bool) ([]float32, error)
	// Release ends one Acquire. After a write it stores the numbers, and fails if it cannot.
	Release(write bool) error
}

// Memory is numbers in memory, all of them, as long as the parameter exists.
type Memory []float32

var _ Storage = Memory(nil)

// Len returns the number of elements.
func (m Memory) Len() int { return len(m) }

// DType returns float32.
func (m Memory) DType() meta.DType { return meta.Float32 }

// Resident returns all elements.
func (m Memory) Resident() (int, []float32) { return 0, m }

// Acquire returns the slice. It does not fail.
func (m Memory) Acquire(bool) ([]float32, error) { return m, nil }

// Release does nothing.
func (m Memory) Release(bool) error { return nil }

// used keys the tensors of parameters on a tape: one within NoGrad needs no gradient.
type used struct {
	p     *Parameter
	needs bool
}

// Use puts p on the tape, as the same tensor however often. The tensor shows p's own numbers, not a
// copy. Numbers that are not in memory are acquired until the record is freed, by Backward or
// [Tape.Reset].
func (tp *Tape) Use(p *Parameter) *Tensor {
	switch {
	case tp.err != nil:
		return tp.void()
	case p == nil:
		return tp.fail("use: no parameter")
	case !sized(p.shape, p.Len()):
		return tp.fail("use: a parameter of shape %v with %d numbers", p.shape, p.Len())
	case p.grad != nil && len(p.grad) != p.Len():
		return tp.fail("use: a parameter of %d numbers with a gradient of %d", p.Len(), len(p.grad))
	}
	key := used{p, tp.recording() && p.Trainable}
	if t := tp.uses[key]; t != nil {
		return t
	}
	data, err := p.Acquire(false)
	if err != nil {
		return tp.fail("use: %w", err)
	}
	if p.memory == nil {
		tp.acquired = append(tp.acquired, p)
	}
	t := &Tensor{tape: tp, data: data, shape: slices.Clone(p.shape), param: p, needs: key.needs, pass: tp.pass}
	tp.uses[key] = t
	return t
}

// release ends the use of parameters that were acquired. It returns the first error.
func (tp *Tape) release() error {
	var first error
	for _, p := range tp.acquired {
		if err := p.Release(false); first == nil {
			first = err
		}
	}
	clear(tp.acquired)
	tp.acquired = tp.acquired[:0]
	return first
}
