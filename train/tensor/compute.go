package tensor

import (
	"errors"
	"sync"

	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// The operations of layers (products, causal attention, norms, rotary embeddings, gates,
// cross-entropies, convolutions, pools) and their gradients are those of package backend, which
// also runs the models of train/model. Each gradient exists once.

// backends are the idle backends, which all tapes share.
var backends = struct {
	sync.Mutex
	idle []*cpu.Backend
}{}

// idleBackends is the maximum number of idle backends, with their threads, that are kept for
// later operations.
const idleBackends = 8

// compute runs f on a backend of the tape's threads and kernels.
func (tp *Tape) compute(name string, f func(b *cpu.Backend)) {
	b, err := takeBackend(tp.threads, tp.Kernels())
	if err != nil {
		tp.fail("%s: %w", name, err)
		return
	}
	defer returnBackend(b)
	f(b)
	if err := b.Sync(); err != nil {
		tp.fail("%s: %w", name, err)
	}
}

func takeBackend(threads int, kernels string) (*cpu.Backend, error) {
	backends.Lock()
	defer backends.Unlock()
	for i := len(backends.idle) - 1; i >= 0; i-- {
		if b := backends.idle[i]; b.Threads() == threads && b.Variant() == kernels {
			backends.idle = append(backends.idle[:i], backends.idle[i+1:]...)
			return b, nil
		}
	}
	return cpu.New(cpu.Options{Threads: threads, Variant: kernels})
}

// returnBackend keeps b. If there are too many, it closes the one that has been idle longest.
func returnBackend(b *cpu.Backend) {
	backends.Lock()
	backends.idle = append(backends.idle, b)
	var oldest *cpu.Backend
	if len(backends.idle) > idleBackends {
		oldest = backends.idle[0]
		backends.idle = append(backends.idle[:0], backends.idle[1:]...)
	}
	backends.Unlock()
	if oldest != nil {
		_ = oldest.Close() // its memory was scratch
	}
}

// CloseIdle stops the idle threads that all tapes share. Later operations start new ones. It does
// not wait for running operations.
func CloseIdle() error {
	backends.Lock()
	all := backends.idle
	backends.idle = nil
	backends.Unlock()
	var errs []error
	for _, b := range all {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// matrixOf views v as rows of n elements, or returns the absent tensor for nil.
func matrixOf(v []float32, n int) view.Tensor {
	if v == nil {
		return view.Tensor{}
	}
	return view.Floats(v, len(v)/max(n, 1), n)
}

// vectorOf views v as a vector, or returns the absent tensor for nil.
func vectorOf(v []float32) view.Tensor {
	if v == nil {
		return view.Tensor{}
	}
	return view.Floats(v, len(v))
}

// dataOf returns a tensor's elements, or nil for a nil tensor.
func dataOf(t *Tensor) []float32 {
	if t == nil {
		return nil
	}
	return t.data
}
