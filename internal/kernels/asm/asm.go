// Package asm converts operands for the generated assembly: slices to addresses, floats to bits,
// booleans to flags. It also computes where to prefetch. The functions inline to a few
// instructions.
//
// Functions that call generated code are marked go:noinline. The scheduler preempts a goroutine
// in the prologue of a function, and cannot preempt a kernel. Without the prologue, a loop of
// kernels would delay a garbage collection.
package asm

import (
	"math"
	"unsafe"
)

// Floats returns the address of v's first element.
func Floats(v []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// Bytes returns the address of v's first element.
func Bytes(v []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// Words returns the address of v's first element.
func Words(v []uint32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// FloatBytes returns the memory of v.
func FloatBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// Bits returns the bits of v, to pass a float32 in an integer register.
func Bits(v float32) int64 { return int64(math.Float32bits(v)) }

// Flag returns 1 for true and 0 for false.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Stagger returns a distance close to apart at which three to eight streams do not reach new pages
// of memory at the same time. Within a page the hardware prefetcher starts only after some ten
// lines were requested. Each of those lines occupies one of the few fill buffers for as long as
// memory takes.
func Stagger(apart, streams int) int {
	const page, most = 4096, 4096 * 3 / 8
	least, in := page/streams&^63, apart%page&^63
	apart = apart &^ (page - 1)
	switch {
	case in <= page/2:
		return apart + min(max(in, least), most)
	default:
		return apart + max(min(in, page-least), page-most)
	}
}
