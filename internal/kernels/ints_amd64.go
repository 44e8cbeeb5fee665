//go:build !purego

package kernels

import "unsafe"

// vnni is AVX-512 VNNI.
type vnni struct{}

// zero is what is added to codes of weights to make them unsigned.
func (p Packing) zero() int64 {
	if p == Q8 {
		return 128
	}
	return 8
}

//go:noinline
func (vnni) narrow(p Packing, dst []uint32, src []float32) {
	avx512vnniNarrow(wordPtr(dst), ptr(src), int64(len(src)/BlockColumns), p.zero())
}

// An intKernel computes one or four rows for one or two tokens.
type intKernel func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, blocks int64, halves unsafe.Pointer)

// intKernels are for one or four rows, and one or two tokens.
type intKernels [2][2]intKernel

var (
	intsQ8 = intKernels{{avx512vnniDotQ81x1, avx512vnniDotQ81x2}, {avx512vnniDotQ84x1, avx512vnniDotQ84x2}}
	intsQ4 = intKernels{{avx512vnniDotQ41x1, avx512vnniDotQ41x2}, {avx512vnniDotQ44x1, avx512vnniDotQ44x2}}
)

func (vnni) dot(p Packing, y Floats, blocks []byte, stride int, x Pairs, rows, tokens, n int) {
	kernels := &intsQ8
	if p == Q4 {
		kernels = &intsQ4
	}
	table := ptr(halves())
	for r := 0; r < rows; {
		few, w := 1, bytePtr(blocks[r*stride:])
		if rows-r >= 4 {
			few = 4
		}
		for t := 0; t < tokens; {
			pair := min(2, tokens-t)
			callInts(kernels[few/4][pair-1], w, stride, wordPtr(x.V[t*x.Stride:]), x.Stride, ptr(y.V[t*y.Stride+r:]), y.Stride, n, table)
			t += pair
		}
		r += few
	}
}

//go:noinline
func callInts(k intKernel, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, n int, table unsafe.Pointer) {
	k(w, int64(ws), x, int64(4*xs), y, int64(4*ys), int64(n/BlockColumns), table)
}
