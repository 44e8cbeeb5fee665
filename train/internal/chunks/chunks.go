// Package chunks keeps the state of training within a memory limit. A [Store] holds float32
// arrays: weights, gradients, pieces of an optimizer's state. An [Array] is in memory while it is
// acquired. Otherwise it may be evicted to the store's scratch file, which takes a write if it
// was changed. An Array is the storage of a tensor.Parameter, of a gradient, or of a piece of an
// optimizer's state.
//
// The package does not know what the arrays are for, or which of them should stay in memory.
package chunks

import (
	"github.com/heftai/heft/internal/residency"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Store is the memory and the scratch file that arrays share. Its methods are safe for concurrent
// use.
type Store struct{ *residency.Changing }

// New returns a Store without arrays. It removes scratch files in the directory that killed
// processes have left.
func New(o residency.ChangingOptions) *Store { return &Store{residency.NewChanging(o)} }

// Add adds an array of n elements. fill writes the initial values whenever they are needed; nil
// means zeros. Nothing is allocated yet. name appears in errors.
func (s *Store) Add(name string, n int, fill func(to []float32) error) *Array {
	var source func(to []byte) error
	if fill != nil {
		source = func(to []byte) error { return fill(floats(to)) }
	}
	return &Array{s.Changing.Add(name, 4*int64(n), source), s}
}

// Array is an array of a Store.
type Array struct {
	*residency.Changed
	store *Store
}

var _ tensor.GradientStorage = (*Array)(nil)

// Of returns the array that holds the values of p, or nil.
func Of(p *tensor.Parameter) *Array {
	a, _ := p.Storage().(*Array)
	return a
}

// Store returns the store of the array.
func (a *Array) Store() *Store { return a.store }

// Len returns the number of elements.
func (a *Array) Len() int { return int(a.Size() / 4) }

// Resize drops the values and changes the number of elements. The array must not be acquired.
func (a *Array) Resize(n int) { a.Changed.Resize(4 * int64(n)) }

// DType returns float32.
func (a *Array) DType() meta.DType { return meta.Float32 }

// Resident returns the values while they are acquired.
func (a *Array) Resident() (int, []float32) { return 0, floats(a.Changed.Resident()) }

// Acquire brings the values into memory. It returns an error if they cannot be read, or if
// evicted values cannot be written; then no values are lost.
func (a *Array) Acquire(write bool) ([]float32, error) {
	data, err := a.Changed.Acquire()
	if err != nil {
		return nil, err
	}
	if write {
		a.MarkDirty()
	}
	return floats(data), nil
}

// Release ends one Acquire. Its error is always nil.
func (a *Array) Release(bool) error {
	a.Changed.Release()
	return nil
}

func floats(data []byte) []float32 {
	if len(data) == 0 {
		return nil
	}
	return view.Tensor{DType: meta.Float32, Rank: 1, Dims: [view.MaxRank]int{len(data) / 4}, Data: data}.F32()
}
