package backend

import "github.com/heftai/heft/internal/tensor"

// A Filler is a Backend whose memory can be filled while it computes.
type Filler interface {
	Backend
	// Fence returns a mark after all operations so far.
	Fence() Fence
	// Fill copies src to dst, bytes of the device. src is host memory of any kind, and may change
	// when Fill returns. The copy begins when the operations before the mark have ended, and
	// overlaps with operations that were called after the mark and before Fill. Later operations
	// wait for it.
	//
	// The processor reads src. The caller must recover from a fault in a mapping; the Filler stays
	// usable.
	Fill(dst tensor.Tensor, src []byte, after Fence) error
}

// A Fence is a mark in the operations of a [Filler]. The zero Fence precedes all of them.
type Fence uint64

// A Sharer is a Backend with memory that any goroutine may copy and free while operations run
// that do not use it. Only the goroutine that uses the backend may allocate it.
type Sharer interface {
	Backend
	Shared() Memory
}
