//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

type smallBatchKernel func(w unsafe.Pointer, ws int64, x, y unsafe.Pointer, ys, n, tokens int64, far unsafe.Pointer, sp int64)

// The kernels for one block of rows, and for two. For few tokens, two blocks hide the latency of
// the additions.
var (
	fewOne = [len(smallBatchWidths)]smallBatchKernel{avx512SmallBatch1x1, avx512SmallBatch1x2, avx512SmallBatch1x4, avx512SmallBatch1x6, avx512SmallBatch1x8, avx512SmallBatch1x12, avx512SmallBatch1x16}
	fewTwo = [len(smallBatchWidths)]smallBatchKernel{avx512SmallBatch2x1, avx512SmallBatch2x2, avx512SmallBatch2x4}
)

//go:noinline
func (a *simd) side(dst []float32, x mat.Floats, tokens, width, n int) {
	avx512InterleaveTokens(asm.Floats(dst), asm.Floats(x.V), int64(4*x.Stride), int64(tokens), int64(width), int64(n))
}

func (a *simd) sumSmallBatch(b SmallBatch) {
	c, w, x, rows, tokens, n, next := b.C, b.W, b.X, b.Rows, b.Tokens, b.N, b.Next
	i := 0
	for smallBatchWidths[i] < tokens {
		i++
	}
	const streams = 8
	apart := asm.Stagger(len(next)/streams, streams)
	for r, far := 0, 0; r < rows; {
		kernel, part := fewTwo[i], 2*SmallBatchRows
		if kernel == nil || rows-r < part {
			kernel, part = fewOne[i], SmallBatchRows
		}
		r = min(r, rows-part) // repeats some rows, with the same bits
		callSmallBatch(kernel, w.Data[r*w.Stride:], w.Stride, x, c.V[r:], c.Stride, n, tokens, next[min(far, len(next)):], apart)
		r += part
		far += part / SmallBatchRows * (n / SmallBatchColumns) * (SmallBatchRows / streams * 64)
	}
}

//go:noinline
func callSmallBatch(k smallBatchKernel, w []byte, ws int, x, c []float32, cs, n, tokens int, next []byte, apart int) {
	k(asm.Bytes(w), int64(ws), asm.Floats(x), asm.Floats(c), int64(4*cs), int64(n), int64(tokens), asm.Bytes(next), int64(apart))
}
