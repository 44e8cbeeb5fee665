//go:build !purego

package attention

import (
	mathbits "math/bits"
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A pagesKernel is an AVX-512 kernel for pages.
type pagesKernel func(a unsafe.Pointer)

const blockFormat = mat.Formats // stands for blocks in the tables below

// wideLanes reads pages with AVX-512. It has kernels for 1, 2, 4 and 8 queries.
type wideLanes struct{}

var (
	scoresKernels = [mat.Formats + 1][4]pagesKernel{
		mat.BFloat16: {avx512ScoresBF16x1, avx512ScoresBF16x2, avx512ScoresBF16x4, avx512ScoresBF16x8},
		mat.Float32:  {avx512ScoresF32x1, avx512ScoresF32x2, avx512ScoresF32x4, avx512ScoresF32x8},
		blockFormat:  {avx512ScoresQ8x1, avx512ScoresQ8x2, avx512ScoresQ8x4, avx512ScoresQ8x8},
	}
	weighKernels = [mat.Formats + 1][4]pagesKernel{
		mat.BFloat16: {avx512WeighBF16x1, avx512WeighBF16x2, avx512WeighBF16x4, avx512WeighBF16x8},
		mat.Float32:  {avx512WeighF32x1, avx512WeighF32x2, avx512WeighF32x4, avx512WeighF32x8},
		blockFormat:  {avx512WeighQ8x1, avx512WeighQ8x2, avx512WeighQ8x4, avx512WeighQ8x8},
	}
)

// kind returns the index of p's kernels in the tables.
func (p *Paged) kind() mat.Format {
	if p.Blocks {
		return blockFormat
	}
	return p.Format
}

func (wideLanes) mostWeighed() int { return 8 }

func (wideLanes) scores(y mat.Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	a := argumentsOf(y, p, pages)
	a.x, a.xs = asm.Floats(q), int64(4*queries*mat.CeilDiv(dim, quant.BlockColumns)*quant.BlockColumns)
	a.n, a.keys = int64(dim), int64(len(pages)*PagedTokens)
	callPages(scoresKernels[p.kind()][log2(queries)], a)
}

func (wideLanes) weigh(o PageSum) {
	a := argumentsOf(o.Y, o.P, o.Pages)
	a.x, a.xs = asm.Floats(o.W.V), int64(4*o.W.Stride)
	a.w = asm.Bytes(o.P.Data[o.First*o.P.Row:])
	a.n, a.keys = int64(o.Cols), int64(o.Keys)
	callPages(weighKernels[o.P.kind()][log2(o.Queries)], a)
}

func log2(n int) int { return mathbits.Len(uint(n)) - 1 }

func argumentsOf(y mat.Floats, p *Paged, pages []int32) *pagesArguments {
	p.arguments = pagesArguments{
		y: asm.Floats(y.V), ys: int64(4 * y.Stride), w: asm.Bytes(p.Data), pages: unsafe.Pointer(unsafe.SliceData(pages)),
		ps: int64(p.Page), hs: int64(p.Head), ws: int64(p.Row), heads: int64(p.Heads),
	}
	return &p.arguments
}

//go:noinline
func callPages(k pagesKernel, a *pagesArguments) {
	k(unsafe.Pointer(a))
	*a = pagesArguments{} // so that nothing is kept from the collector
}
