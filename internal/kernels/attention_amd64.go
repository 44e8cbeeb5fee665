//go:build !purego

package kernels

import (
	mathbits "math/bits"
	"unsafe"
)

// The functions below are not inlined, as those of asm_amd64.go.

//go:noinline
func (bf16) softmax(p []uint32, c Floats, keys, base int, by float32, o *Online, whole bool) {
	var all int64
	if whole {
		all = 1
	}
	bf16Softmax(ptr(c.V), int64(4*c.Stride), wordPtr(p), unsafe.Pointer(o), int64(keys), int64(base), bits(by), all)
}

//go:noinline
func (bf16) scaleLanes(x Floats, rows int, by *[PanelTokens]float32) {
	bf16ScaleLanes(ptr(x.V), int64(4*x.Stride), int64(rows), unsafe.Pointer(by))
}

//go:noinline
func (bf16) packTurned(dst []uint32, apart int, w, next Weights, cols int) bool {
	var bad uint32
	bf16PackTurned(wordPtr(dst), int64(4*apart), bytePtr(w.Data), int64(w.Stride), bytePtr(next.Data), int64(next.Stride), int64(cols), unsafe.Pointer(&bad))
	return bad == 0
}

//go:noinline
func (bf16) narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int) {
	bf16NarrowRowsQ8(bytePtr(dst), int64(apart), bytePtr(w), int64(stride), int64(rows), int64(blocks))
}

//go:noinline
func (a *asm) unpackRows(dst Floats, w []byte, stride, rows, blocks int) {
	if a.wide {
		avx512UnpackRowsQ8(ptr(dst.V), int64(4*dst.Stride), bytePtr(w), int64(stride), int64(rows), int64(blocks))
	} else {
		avx2UnpackRowsQ8(ptr(dst.V), int64(4*dst.Stride), bytePtr(w), int64(stride), int64(rows), int64(blocks))
	}
}

func (b bf16) couple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	if b.tiles {
		callCouple(c, w, ws, x, xs, blocks, groups, add)
		return
	}
	for i := range groups {
		b.tile(Floats{V: c.V[i*2*PackRows*c.Stride:], Stride: c.Stride}, w[2*i*ws:], ws, x, xs, blocks, 1, add)
	}
}

//go:noinline
func callCouple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	amxCouple(wordPtr(w), int64(4*ws), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), int64(groups), goOn)
}

// pagesKernel is a kernel of pages with AVX-512.
type pagesKernel func(a unsafe.Pointer)

const blockFormat = formats // stands for blocks in the tables below

// wideLanes reads pages with AVX-512. The kernels are for 1, 2, 4 and 8 queries.
type wideLanes struct{}

var (
	scoresKernels = [formats + 1][4]pagesKernel{
		BFloat16:    {avx512ScoresBF16x1, avx512ScoresBF16x2, avx512ScoresBF16x4, avx512ScoresBF16x8},
		Float32:     {avx512ScoresF32x1, avx512ScoresF32x2, avx512ScoresF32x4, avx512ScoresF32x8},
		blockFormat: {avx512ScoresQ8x1, avx512ScoresQ8x2, avx512ScoresQ8x4, avx512ScoresQ8x8},
	}
	weighKernels = [formats + 1][4]pagesKernel{
		BFloat16:    {avx512WeighBF16x1, avx512WeighBF16x2, avx512WeighBF16x4, avx512WeighBF16x8},
		Float32:     {avx512WeighF32x1, avx512WeighF32x2, avx512WeighF32x4, avx512WeighF32x8},
		blockFormat: {avx512WeighQ8x1, avx512WeighQ8x2, avx512WeighQ8x4, avx512WeighQ8x8},
	}
)

// kind is where the tables have the kernels of p.
func (p *Paged) kind() Format {
	if p.Blocks {
		return blockFormat
	}
	return p.Format
}

func (wideLanes) mostWeighed() int { return 8 }

func (wideLanes) scores(y Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	a := argumentsOf(y, p, pages)
	a.x, a.xs = ptr(q), int64(4*queries*ceil(dim, BlockColumns)*BlockColumns)
	a.n, a.keys = int64(dim), int64(len(pages)*PagedTokens)
	callPages(scoresKernels[p.kind()][log2(queries)], a)
}

func (wideLanes) weigh(y, w Floats, queries int, p *Paged, pages []int32, first, keys, cols int) {
	a := argumentsOf(y, p, pages)
	a.x, a.xs = ptr(w.V), int64(4*w.Stride)
	a.w = bytePtr(p.Data[first*p.Row:])
	a.n, a.keys = int64(cols), int64(keys)
	callPages(weighKernels[p.kind()][log2(queries)], a)
}

func log2(n int) int { return mathbits.Len(uint(n)) - 1 }

func argumentsOf(y Floats, p *Paged, pages []int32) *pagesArguments {
	p.arguments = pagesArguments{
		y: ptr(y.V), ys: int64(4 * y.Stride), w: bytePtr(p.Data), pages: unsafe.Pointer(unsafe.SliceData(pages)),
		ps: int64(p.Page), hs: int64(p.Head), ws: int64(p.Row), heads: int64(p.Heads),
	}
	return &p.arguments
}

//go:noinline
func callPages(k pagesKernel, a *pagesArguments) {
	k(unsafe.Pointer(a))
	*a = pagesArguments{} // so that nothing is kept from the collector
}
