// Package roof measures what a processor can do at most: products on values that stay in registers,
// and reading memory.
package roof

import "unsafe"

// A Roof is a kind of product that this processor can make, at the highest rate that it
// has: on values that stay in registers. Kernels come near it where their values are at
// hand.
type Roof struct {
	// Name is "fma" (float32), "bf16" (pairs of bfloat16), "vnni" (fours of 8-bit integers),
	// "amx_bf16" or "amx_int8" (tiles of these).
	Name string
	// Operations are the multiplications and additions of one step.
	Operations int64
	run        func(steps int64)
}

// Run makes so many steps, some nanoseconds each. It cannot be stopped meanwhile.
func (r *Roof) Run(steps int64) { r.run(steps) }

// readUnit is what the reading kernels' lengths are multiples of.
const readUnit = 1024

// ReadMemory reads b as fast as this processor can and returns something that depends on
// every byte of it but for the last ones that make no whole KiB. It cannot be stopped
// meanwhile: pieces of 1 MiB take some tens of microseconds from memory.
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

const line = 64 // bytes of the caches

// Stream fills b with a byte past the caches, so that the next read of it comes from memory. b
// begins and ends at multiples of 64 bytes; Stream panics where it does not. It reports false, and
// fills nothing, on processors that cannot. It cannot be stopped meanwhile: 1 MiB takes about 0.1
// ms.
func Stream(b []byte, with byte) bool {
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); (at|uintptr(len(b)))%line != 0 {
		panic("roof: memory to stream is not aligned to cache lines")
	}
	return stream(b, with)
}
