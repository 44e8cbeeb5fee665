//go:build !purego

package gemv

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

// splitAVX2 computes dot products with few tokens in AVX2. Its kernels need whole blocks of k.
type splitAVX2 struct{}

func (splitAVX2) most() int { return 8 }

//go:noinline
func (splitAVX2) split(dst []float32, step int, src []float32) {
	avx2Split(asm.Floats(dst), int64(4*step), asm.Floats(src), int64(len(src)))
}

func (h splitAVX2) mulSplit(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool) {
	whole := n &^ (SplitBlock - 1)
	if whole == n {
		h.blocks(y, w, x, sums, rows, tokens, n, k, last)
		return
	}
	if whole > 0 {
		h.blocks(y, w, x, sums, rows, tokens, whole, k, false)
	}
	// The rest of a row is padded with zeros, as tokens are, for as many rows as any kernel
	// computes at a time.
	const some = 12
	var block [some * 2 * SplitBlock]byte
	rest := mat.Weights{Data: block[:], Stride: 2 * SplitBlock, Format: mat.BFloat16}
	for r := 0; r < rows; r += some {
		part := min(some, rows-r)
		for i := range part {
			copy(block[i*rest.Stride:], w.Data[(r+i)*w.Stride+2*whole:][:2*(n-whole)])
		}
		to := mat.Floats{V: y.V[r:], Stride: y.Stride}
		h.blocks(to, rest, x[whole*tokens:], sums[r*tokens*8:], part, tokens, SplitBlock, k+whole, last)
	}
}

//go:noinline
func (splitAVX2) blocks(y mat.Floats, w mat.Weights, x, sums []float32, rows, tokens, n, k int, last bool) {
	if tokens == 1 && k == 0 && last {
		switch fetch.Rows(fetch.Floats) { // called directly: arguments of a function value would escape
		case 1:
			avx2SplitOnex1(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		case 4:
			avx2SplitOnex4(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		default:
			avx2SplitOnex8(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(y.V), int64(n), int64(rows))
		}
		return
	}
	counts := int64(4*rows) | asm.Flag(k == 0) | 2*asm.Flag(last)
	far, apart := streamsAhead(tokens, rows, w.Stride, k)
	switch tokens {
	case 1:
		avx2MulSplit1(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), counts, far, apart)
	case 2:
		avx2MulSplit2(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), counts, far, apart)
	case 4:
		avx2MulSplit4(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), counts, far, apart)
	default:
		avx2MulSplit8(asm.Bytes(w.Data), int64(w.Stride), asm.Floats(x), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), counts, far, apart)
	}
}

// streamsAhead returns where the kernels prefetch the following rows, one piece of k after another:
// from far on, with 4 and 8 tokens in three streams that lie apart, otherwise in one.
func streamsAhead(tokens, rows, stride, k int) (far, apart int64) {
	following := rows*stride - 2*k
	if tokens < 4 {
		return int64(following + rows*2*k), 0
	}
	const streams = 3
	return int64(following + rows/streams*2*k), int64(asm.Stagger(rows*stride/streams, streams))
}
