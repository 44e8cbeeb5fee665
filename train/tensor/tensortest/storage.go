// Package tensortest provides implementations of tensor.Storage for tests. [Elsewhere] has its values
// in memory only while they are acquired, a [Shard] has one rank's part of them, and [Narrow] stores
// them as bfloat16.
package tensortest

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"github.com/heftai/heft/meta"
)

// Elsewhere is a storage that keeps values as bytes, like a file. Each Acquire returns them at
// another address, which Release fills with NaN.
type Elsewhere struct {
	// Fails, if not nil, is returned by the next Acquire or Release.
	Fails error

	mu      sync.Mutex
	bytes   []byte
	values  []float32
	readers int
	writing bool
	// Acquired counts successful Acquire calls.
	Acquired int
}

// NewElsewhere stores a copy of values.
func NewElsewhere(values []float32) *Elsewhere {
	e := &Elsewhere{}
	e.store(values)
	return e
}

func (e *Elsewhere) store(values []float32) {
	e.bytes = make([]byte, 0, 4*len(values))
	for _, v := range values {
		e.bytes = binary.LittleEndian.AppendUint32(e.bytes, math.Float32bits(v))
	}
}

// Len returns the number of elements.
func (e *Elsewhere) Len() int { return len(e.bytes) / 4 }

// DType returns float32.
func (e *Elsewhere) DType() meta.DType { return meta.Float32 }

// Resident returns the values while they are acquired.
func (e *Elsewhere) Resident() (int, []float32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return 0, e.values
}

// Acquire returns an error if a writer holds the values, or with write if any caller does.
func (e *Elsewhere) Acquire(write bool) ([]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.Fails; err != nil {
		e.Fails = nil
		return nil, err
	}
	if e.writing || write && e.readers > 0 {
		return nil, errors.New("tensortest: acquire for writing: the storage is in use")
	}
	if e.values == nil {
		e.values = make([]float32, e.Len())
		for i := range e.values {
			e.values[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.bytes[4*i:]))
		}
	}
	e.readers++
	e.Acquired++
	e.writing = write
	return e.values, nil
}

// Release stores the values after a write. It poisons them after the last release.
func (e *Elsewhere) Release(write bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.readers == 0 || write != e.writing {
		return errors.New("tensortest: release without a matching acquire")
	}
	if e.writing {
		e.store(e.values)
	}
	e.writing = false
	if e.readers--; e.readers == 0 {
		for i := range e.values {
			e.values[i] = float32(math.NaN())
		}
		e.values = nil
	}
	err := e.Fails
	e.Fails = nil
	return err
}

// InUse reports whether the values are acquired.
func (e *Elsewhere) InUse() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readers > 0
}
