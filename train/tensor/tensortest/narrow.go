package tensortest

import (
	"errors"
	"sync"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/meta"
)

// Narrow is a storage of bfloat16 values. Acquire widens them and Release rounds them.
type Narrow struct {
	mu      sync.Mutex
	bits    []uint16
	values  []float32
	readers int
	writing bool
}

// NewNarrow stores values rounded to bfloat16.
func NewNarrow(values []float32) *Narrow {
	n := &Narrow{bits: make([]uint16, len(values))}
	n.store(values)
	return n
}

func (n *Narrow) store(values []float32) {
	for i, v := range values {
		n.bits[i] = floats.ToBFloat16(v)
	}
}

// Len returns the number of elements.
func (n *Narrow) Len() int { return len(n.bits) }

// DType returns bfloat16.
func (n *Narrow) DType() meta.DType { return meta.BFloat16 }

// Resident returns the widened values while they are acquired.
func (n *Narrow) Resident() (int, []float32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 0, n.values
}

// Acquire widens the values.
func (n *Narrow) Acquire(write bool) ([]float32, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writing || write && n.readers > 0 {
		return nil, errors.New("tensortest: acquire for writing: the storage is in use")
	}
	if n.values == nil {
		n.values = make([]float32, len(n.bits))
		for i, b := range n.bits {
			n.values[i] = floats.FromBFloat16(b)
		}
	}
	n.readers++
	n.writing = write
	return n.values, nil
}

// Release rounds and stores the values after a write.
func (n *Narrow) Release(write bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readers == 0 || write != n.writing {
		return errors.New("tensortest: release without a matching acquire")
	}
	if write {
		n.store(n.values)
	}
	n.writing = false
	if n.readers--; n.readers == 0 {
		clear(n.values)
		n.values = nil
	}
	return nil
}

// InUse reports whether the values are acquired.
func (n *Narrow) InUse() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.readers > 0
}
