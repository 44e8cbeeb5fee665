package model

import (
	"fmt"
	"math/bits"

	"github.com/heftai/heft/internal/residency"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/train/internal/chunks"
)

// Activations limits the memory in bytes for the states between units that [Model.Losses] keeps for
// Backward. States beyond the limit go to a scratch file in dir, with checksums. If the process is
// killed, the next one that uses dir removes the file. Without this option all states stay in
// memory.
func Activations(limit int64, dir string) Option {
	return func(o *options) {
		o.activations = residency.ChangingOptions{Limit: max(limit, 1), Dir: dir, Arena: &arena, Mover: &mover}
	}
}

// between stores the states between units of several passes, and their gradients. A place of a pass
// lies between two units.
type between struct {
	store  *chunks.Store
	arrays map[[2]int]*chunks.Array // by pass and place
}

func newBetween(o residency.ChangingOptions) *between {
	return &between{store: chunks.New(o), arrays: map[[2]int]*chunks.Array{}}
}

// put calls f to write n numbers to a place.
func (b *between) put(pass, place, n int, f func(to []float32) error) error {
	a := b.arrays[[2]int{pass, place}]
	if a == nil {
		a = b.store.Add(fmt.Sprintf("states of batch %d before unit %d", pass, place), sized(n), nil)
		b.arrays[[2]int{pass, place}] = a
	}
	if a.Len() != sized(n) {
		a.Resize(sized(n))
	}
	return b.access(a, n, true, f)
}

// use calls f to read the n numbers of a place or, if write is set, to change them.
func (b *between) use(pass, place, n int, write bool, f func(x []float32) error) error {
	return b.access(b.arrays[[2]int{pass, place}], n, write, f)
}

func (b *between) access(a *chunks.Array, n int, write bool, f func(x []float32) error) error {
	x, err := a.Acquire(write)
	if err != nil {
		return err
	}
	err = f(x[:n])
	_ = a.Release(write) // an array's Release cannot fail
	return err
}

// drop discards the contents of a place.
func (b *between) drop(pass, place int) {
	if a := b.arrays[[2]int{pass, place}]; a != nil {
		a.Drop()
	}
}

// clear discards everything.
func (b *between) clear() {
	for _, a := range b.arrays {
		a.Drop()
	}
}

// sized rounds n up by at most a quarter, so that batches of different lengths can share places of
// the scratch file.
func sized(n int) int {
	step := 1 << max(bits.Len(uint(n))-3, 0)
	return (n + step - 1) / step * step
}

// states returns x as a matrix with the given number of rows.
func states(x []float32, rows int) view.Tensor { return view.Floats(x, rows, len(x)/rows) }
