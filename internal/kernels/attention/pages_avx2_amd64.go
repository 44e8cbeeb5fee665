//go:build !purego

package attention

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// The AVX2 kernels for pages, indexed by the number of queries: 1, 2, 4 and 8 for scores, up to 4
// for weighted sums.
type (
	scoresKernel func(y unsafe.Pointer, ys int64, q, w, pages unsafe.Pointer, ps, ws, dim, count int64)
	weighKernel  func(y unsafe.Pointer, ys int64, p unsafe.Pointer, ss int64, w, pages unsafe.Pointer, ps, ws, keys, cols int64)
)

// narrowLanes reads pages with AVX2, one head after another.
type narrowLanes struct{}

var scoresAVX2 = [mat.Formats + 1][4]scoresKernel{
	mat.BFloat16: {avx2ScoresBF16x1, avx2ScoresBF16x2, avx2ScoresBF16x4, avx2ScoresBF16x8},
	mat.Float32:  {avx2ScoresF32x1, avx2ScoresF32x2, avx2ScoresF32x4, avx2ScoresF32x8},
	blockFormat:  {avx2ScoresQ8x1, avx2ScoresQ8x2, avx2ScoresQ8x4, avx2ScoresQ8x8},
}

// A strip is a number of columns with the kernel for them, or with one kernel for each half.
type strip struct {
	columns      int
	kernel, half weighKernel
}

// Strips are in descending order of columns. The last one fits any remainder.
var weighAVX2 = [mat.Formats + 1][3][]strip{
	mat.BFloat16: {
		{{64, avx2WeighBF16x1by64, nil}, {8, avx2WeighBF16x1by8, nil}, {1, avx2WeighBF16x1by1, nil}},
		{{32, avx2WeighBF16x2by32, nil}, {8, avx2WeighBF16x2by8, nil}, {1, avx2WeighBF16x2by1, nil}},
		{{16, avx2WeighBF16x4by16, nil}, {8, avx2WeighBF16x4by8, nil}, {1, avx2WeighBF16x4by1, nil}},
	},
	mat.Float32: {
		{{64, avx2WeighF32x1by64, nil}, {8, avx2WeighF32x1by8, nil}, {1, avx2WeighF32x1by1, nil}},
		{{32, avx2WeighF32x2by32, nil}, {8, avx2WeighF32x2by8, nil}, {1, avx2WeighF32x2by1, nil}},
		{{16, avx2WeighF32x4by16, nil}, {8, avx2WeighF32x4by8, nil}, {1, avx2WeighF32x4by1, nil}},
	},
	blockFormat: {
		{{64, avx2WeighQ8x1by64, nil}, {32, avx2WeighQ8x1by32, nil}},
		{{32, avx2WeighQ8x2by32, nil}},
		{{32, avx2WeighQ8x4by16, avx2WeighQ8x4next16}},
	},
}

func (narrowLanes) scores(y mat.Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	k, size := scoresAVX2[p.kind()][log2(queries)], queries*mat.CeilDiv(dim, quant.BlockColumns)*quant.BlockColumns
	for h := range p.Heads {
		callScores(k, mat.Floats{V: y.V[h*queries*y.Stride:], Stride: y.Stride}, q[h*size:], p, h*p.Head, pages, dim)
	}
}

// strippedBytes is the size of the values that all strips of columns read before the next pages.
// It fits the first-level cache.
const strippedBytes = 16 << 10

func (narrowLanes) mostWeighed() int { return 4 }

func (l narrowLanes) weigh(o PageSum) {
	for h := range o.P.Heads {
		rows, head := h*o.Queries, o
		head.Y.V, head.W.V = o.Y.V[rows*o.Y.Stride:], o.W.V[rows*o.W.Stride:]
		l.weighHead(head, h*o.P.Head+o.First*o.P.Row)
	}
}

// weighHead is weigh for the head that begins at byte at of each page.
func (narrowLanes) weighHead(o PageSum, at int) {
	p := o.P
	strips := weighAVX2[p.kind()][log2(o.Queries)]
	if p.Blocks {
		o.Cols = mat.CeilDiv(o.Cols, quant.BlockColumns) * quant.BlockColumns
	}
	most := max(1, strippedBytes/(PagedTokens*p.Bytes(o.Cols))) * PagedTokens
	for o.Keys > 0 {
		n, left := min(o.Keys, most), strips
		for c := 0; c < o.Cols; {
			for left[0].columns > o.Cols-c {
				left = left[1:]
			}
			s, v := &left[0], asm.Bytes(p.Data[at+p.Bytes(c):])
			callWeigh(s.kernel, o.Y.V[c:], v, &o, n)
			if s.half != nil {
				callWeigh(s.half, o.Y.V[c+s.columns/2:], v, &o, n)
			}
			c += s.columns
		}
		if o.Keys -= n; o.Keys > 0 { // which then began with a page
			o.Pages, o.W.V = o.Pages[n/PagedTokens:], o.W.V[n:]
		}
	}
}

//go:noinline
func callScores(k scoresKernel, y mat.Floats, q []float32, p *Paged, at int, pages []int32, dim int) {
	k(asm.Floats(y.V), int64(4*y.Stride), asm.Floats(q), asm.Bytes(p.Data[at:]), unsafe.Pointer(unsafe.SliceData(pages)), int64(p.Page), int64(p.Row), int64(dim), int64(len(pages)))
}

//go:noinline
func callWeigh(k weighKernel, y []float32, v unsafe.Pointer, o *PageSum, keys int) {
	k(asm.Floats(y), int64(4*o.Y.Stride), asm.Floats(o.W.V), int64(4*o.W.Stride), v, unsafe.Pointer(unsafe.SliceData(o.Pages)), int64(o.P.Page), int64(o.P.Row), int64(keys), 0)
}
