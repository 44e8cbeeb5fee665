//go:build !purego

package gemv

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// splitAVX512 computes dot products with few tokens in AVX-512.
type splitAVX512 struct{}

func (splitAVX512) most() int { return 8 }

//go:noinline
func (splitAVX512) split(dst []float32, step int, src []float32) {
	avx512Split(asm.Floats(dst), int64(4*step), asm.Floats(src), int64(len(src)))
}

//go:noinline
func (splitAVX512) mulSplit(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool) {
	if tokens == 1 && k == 0 && last {
		switch fetch.Rows(fetch.Floats) { // called directly: arguments of a function value would escape
		case 1:
			avx512SplitOnex1(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		case 4:
			avx512SplitOnex4(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		default:
			avx512SplitOnex8(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		}
		return
	}
	counts := int64(4 * rows)
	if k == 0 {
		counts |= 1
		present(sums)
	}
	if last {
		counts |= 2
	}
	kernel := avx512MulSplit1
	switch tokens {
	case 2:
		kernel = avx512MulSplit2
	case 4:
		kernel = avx512MulSplit4
	case 8:
		kernel = avx512MulSplit8
	}
	far, apart := ahead(tokens, rows, w.Stride, k)
	kernel(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), counts, int64(far), int64(apart))
}

// present writes to each page of sums. The kernels load the first sums under a mask that is off.
// If the system has not yet backed the page with memory, each such load takes some hundred
// cycles.
func present(sums []float32) {
	const page = 4096 / 4
	for i := 0; i < len(sums); i += page {
		sums[i] = 0
	}
	sums[len(sums)-1] = 0
}

// ahead returns where the kernels prefetch the following rows, one piece of k after another: from
// far on, in streams that lie apart. With 8 tokens, every 32 columns of three rows fetch one line
// of three of six streams, alternately. With fewer tokens, every 32 columns of four rows fetch
// two lines of two streams.
func ahead(tokens, rows, stride, k int) (far, apart int) {
	far = rows*stride - 2*k
	if tokens < 8 {
		return far + rows/4*(k/SplitBlock)*128, rows * stride / 2 &^ 63
	}
	const streams = 6
	apart = asm.Stagger(rows*stride/streams, streams)
	columns := rows / 3 * (k / SplitBlock)
	far += 32 * columns
	if columns%2 == 1 { // the second half of the last three rows' streams
		return far + 5*apart, -apart
	}
	return far, apart
}
