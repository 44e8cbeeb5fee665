// Package asm converts operands for the generated assembly: addresses of slices, bits of floats,
// flags, and where to prefetch. The functions inline to a few instructions.
//
// Functions that call generated code are marked go:noinline. The scheduler stops a goroutine in the prologue of a
// function, and cannot in a kernel: without the prologue, a loop of kernels would delay a garbage collection.
package asm

import (
	"math"
	"unsafe"
)

// Floats is the address of v's first element.
func Floats(v []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// Bytes is the address of v's first element.
func Bytes(v []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// Words is the address of v's first element.
func Words(v []uint32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

// FloatBytes is the memory of v.
func FloatBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// Bits passes a float32 in an integer register.
func Bits(v float32) int64 { return int64(math.Float32bits(v)) }

// Flag is 1 for true.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Stagger is the distance next to apart at which six or eight streams do not come to new pages of
// memory together. The processor reads ahead by itself in a page when it has seen some ten lines of
// it asked for, and each of those holds one of few fill buffers for as long as memory takes.
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
