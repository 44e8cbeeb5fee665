package tensor

import (
	"slices"

	"github.com/heftai/heft/meta"
)

// Storage holds the values of a [Parameter]: all in memory ([Memory]), one shard per rank, in a
// file, or in another dtype.
//
// Tapes, models, optimizers and checkpoints access the values only through Acquire and Release,
// so that any Storage can be trained. Several parameters, also of different ranks, may share a
// Storage: its methods must be safe for concurrent use. A caller that acquires with write must be
// the only one that has acquired. The order of a training loop ensures that.
type Storage interface {
	// Len returns the number of elements of the whole parameter.
	Len() int
	// DType returns the dtype of the stored values.
	DType() meta.DType
	// Resident returns the elements that this process has in memory as float32 now, from index
	// first on: all, those of its shard, or none. The slice is valid until the next Acquire or
	// Release.
	Resident() (first int, values []float32)
	// Acquire loads all elements into memory as float32, in the parameter's order. They stay at
	// one address until the matching Release. Calls are counted: several readers share one slice.
	// Acquire may block on reads, or on other ranks that must call it too. It returns an error if
	// the values cannot be read, or if write is set and they cannot be changed.
	Acquire(write bool) ([]float32, error)
	// Release ends one Acquire. After a write it stores the values, and returns an error if it
	// cannot.
	Release(write bool) error
}

// Sharded is a [Storage] of which each rank has a part. All ranks must call Acquire and Release
// together and in the same order, so they must run the same passes: uneven inputs, and
// accumulation windows in which a rank has no batch, are not supported. While a rank has acquired
// the values, its further calls do not wait for the others. To save, all ranks acquire, and one
// rank writes.
type Sharded interface {
	Storage
	// Ranks returns the number of ranks that must call together. With 1, calls do not wait.
	Ranks() int
}

// Memory keeps all values in memory as long as the parameter exists.
type Memory []float32

var _ Storage = Memory(nil)

// Len returns the number of elements.
func (m Memory) Len() int { return len(m) }

// DType returns float32.
func (m Memory) DType() meta.DType { return meta.Float32 }

// Resident returns all elements.
func (m Memory) Resident() (int, []float32) { return 0, m }

// Acquire returns the slice. It never fails.
func (m Memory) Acquire(bool) ([]float32, error) { return m, nil }

// Release does nothing.
func (m Memory) Release(bool) error { return nil }

// used is the key of a parameter's tensor on a tape. A tensor within NoGrad needs no gradient.
type used struct {
	p     *Parameter
	needs bool
}

// Use puts p on the tape. Repeated calls return the same tensor. The tensor shares p's values and
// does not copy them. Values that are not in memory are acquired until Backward or [Tape.Reset]
// frees the record.
func (tp *Tape) Use(p *Parameter) *Tensor {
	switch {
	case tp.err != nil:
		return tp.void()
	case p == nil:
		return tp.fail("use: got a nil parameter")
	case p.storage == nil:
		return tp.fail("use: got a parameter without a storage, want one of NewParameter or NewStored")
	case !sized(p.shape, p.Len()):
		return tp.fail("use: parameter of shape %v has %d elements", p.shape, p.Len())
	case p.grad != nil && len(p.grad) != p.Len():
		return tp.fail("use: parameter has %d elements and a gradient of %d, want equal lengths", p.Len(), len(p.grad))
	}
	key := used{p, tp.recording() && p.Trainable}
	if t := tp.uses[key]; t != nil {
		return t
	}
	data, err := p.Acquire(false)
	if err != nil {
		return tp.fail("use: %w", err)
	}
	t := &Tensor{tape: tp, data: data, shape: slices.Clone(p.shape), param: p, needs: key.needs, pass: tp.pass}
	if p.memory == nil {
		tp.acquired = append(tp.acquired, t)
	}
	tp.uses[key] = t
	if key.needs {
		tp.begin(p, tp.seq)
	}
	return t
}

// release releases the acquired parameters. It returns the first error.
func (tp *Tape) release() error {
	var first error
	for _, t := range tp.acquired {
		t.released = true
		if err := t.param.Release(false); first == nil {
			first = err
		}
	}
	clear(tp.acquired)
	tp.acquired = tp.acquired[:0]
	return first
}
