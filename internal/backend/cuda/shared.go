//go:build cuda

package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cuda/driver"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Sharer = (*Backend)(nil)

// shared is memory that any goroutine may copy and free. Operations check it last, after the
// backend's own allocations.
type shared struct {
	*Backend
	mu     sync.Mutex
	live   allocations
	copies copyQueue // created by the first copy
}

// Shared implements [backend.Sharer].
func (b *Backend) Shared() backend.Memory { return &b.shared }

// New allocates GPU memory. It may be called concurrently with operations of the backend.
func (s *shared) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	t, n, err := s.Backend.newTensor(dtype, dims)
	if err != nil {
		return t, err
	}
	s.mu.Lock()
	s.live.add(t.Address, n)
	s.mu.Unlock()
	return t, s.Backend.clear(t.Address, n)
}

// Free frees t. No queued operation may use t.
func (s *shared) Free(t tensor.Tensor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.live.remove(t.Address); ok {
		s.Backend.free(t.Address, n)
	}
}

// holds is like [allocations.holds].
func (s *shared) holds(p uintptr, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.holds(p, n)
}

// Copy copies concurrently with the operations of the backend. These must not use dst or src
// meanwhile.
func (s *shared) Copy(dst, src tensor.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copies.bounce == nil {
		if err := s.startCopies(); err != nil {
			return fmt.Errorf("cuda: copy: %w", err)
		}
	}
	return s.copies.copy(dst, src, &s.counters)
}

// startCopies creates the queue for copies.
func (s *shared) startCopies() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(s.context); err != nil {
		return err
	}
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return err
	}
	q := driver.Queue{Context: s.queue.Context, Stream: *(*unsafe.Pointer)(unsafe.Pointer(&stream))}
	bounce, err := q.Pinned(bounceBytes)
	if err != nil {
		q.Free()
		return err
	}
	s.copies = copyQueue{&q, bounce}
	return nil
}

// release frees all shared memory.
func (s *shared) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copies.bounce != nil {
		driver.FreePinned(s.copies.bounce)
		s.copies.queue.Free()
		s.copies = copyQueue{}
	}
	for _, a := range s.live {
		s.Backend.free(a.address, a.size)
	}
	s.live = nil
}
