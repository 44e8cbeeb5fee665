package backend

import "github.com/heftai/heft/internal/tensor"

// A Filler is a Backend whose memory can be filled while it computes.
type Filler interface {
	Backend
	// Fence returns a mark behind all operations so far.
	Fence() Fence
	// Fill copies src to dst, bytes of the device. src is host memory of any kind, and may change when
	// Fill returns. The copy begins when the operations before the mark have ended. It runs beside
	// other operations that were called before; those that are called later wait for it.
	//
	// Fill reads src with the processor: a fault in a mapping is the caller's to recover from, and
	// leaves the Filler usable.
	Fill(dst tensor.Tensor, src []byte, after Fence) error
}

// A Fence is a mark in the operations of a [Filler]. The zero Fence is before all of them.
type Fence uint64
