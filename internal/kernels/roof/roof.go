// Package roof measures the highest rates that a processor reaches: of products on values that
// stay in registers, and of reading memory.
package roof

import "unsafe"

// A Roof is a kind of product that this processor supports, at its highest rate on values that
// stay in registers. Kernels come close to it if their values are in caches.
type Roof struct {
	// Name is "fma" (float32), "bf16" (pairs of bfloat16), "vnni" (quadruples of 8-bit integers),
	// "amx_bf16" or "amx_int8" (tiles of these).
	Name string
	// Operations is the number of multiplications and additions in one step.
	Operations int64
	run        func(steps int64)
}

// Run runs a number of steps of some nanoseconds each. It cannot be preempted.
func (r *Roof) Run(steps int64) { r.run(steps) }

// readUnit divides the lengths that the reading kernels support.
const readUnit = 1024

// ReadMemory reads b as fast as this processor can. Its result depends on every byte of the whole
// KiBs of b. It cannot be preempted: 1 MiB takes some tens of microseconds from memory.
func ReadMemory(b []byte) byte {
	var out [64]byte
	if n := len(b) &^ (readUnit - 1); n > 0 {
		readMemory(b[:n], &out)
	}
	sum := byte(0)
	for _, v := range out {
		sum ^= v
	}
	return sum
}

// readPlain is readMemory in Go.
func readPlain(b []byte, out *[64]byte) {
	for ; len(b) >= len(out); b = b[len(out):] {
		for i, v := range b[:len(out)] {
			out[i] ^= v
		}
	}
}

const line = 64 // size of a cache line

// Stream fills b with a byte by non-temporal stores, so that the next read of it comes from
// memory. b must begin and end at multiples of 64 bytes, or Stream panics. It does nothing and
// returns false if the processor has no such stores. It cannot be preempted: 1 MiB takes about
// 0.1 ms.
func Stream(b []byte, with byte) bool {
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); (at|uintptr(len(b)))%line != 0 {
		panic("roof: memory to stream is not aligned to cache lines")
	}
	return stream(b, with)
}
