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

// The kernels of pages, by the number of queries: 1, 2, 4 and 8.
type (
	scoresKernel func(y unsafe.Pointer, ys int64, q, w, pages unsafe.Pointer, ps, ws, dim, count int64)
	weighKernel  func(y unsafe.Pointer, ys int64, p unsafe.Pointer, ss int64, w, pages unsafe.Pointer, ps, ws, keys, cols int64)
)

const blockFormat = formats // stands for blocks in the tables below

// wideLanes reads pages with AVX-512.
type wideLanes struct{}

var (
	scoresKernels = [formats + 1][4]scoresKernel{
		BFloat16:    {avx512ScoresBF16x1, avx512ScoresBF16x2, avx512ScoresBF16x4, avx512ScoresBF16x8},
		Float32:     {avx512ScoresF32x1, avx512ScoresF32x2, avx512ScoresF32x4, avx512ScoresF32x8},
		blockFormat: {avx512ScoresQ8x1, avx512ScoresQ8x2, avx512ScoresQ8x4, avx512ScoresQ8x8},
	}
	weighKernels = [formats + 1][3]weighKernel{
		BFloat16:    {avx512WeighBF16x1, avx512WeighBF16x2, avx512WeighBF16x4},
		Float32:     {avx512WeighF32x1, avx512WeighF32x2, avx512WeighF32x4},
		blockFormat: {avx512WeighQ8x1, avx512WeighQ8x2, avx512WeighQ8x4},
	}
	restKernels = [formats + 1][3]weighKernel{
		BFloat16:    {avx512WeighRestBF16x1, avx512WeighRestBF16x2, avx512WeighRestBF16x4},
		Float32:     {avx512WeighRestF32x1, avx512WeighRestF32x2, avx512WeighRestF32x4},
		blockFormat: {avx512WeighRestQ8x1, avx512WeighRestQ8x2, avx512WeighRestQ8x4},
	}
)

// kind is where the tables have the kernels of p.
func (p *Paged) kind() Format {
	if p.Blocks {
		return blockFormat
	}
	return p.Format
}

// wideColumns is how many columns a kernel takes that does not take the rest.
const wideColumns = 64

func (wideLanes) scores(y Floats, q []float32, queries int, p *Paged, pages []int32, dim int) {
	k := scoresKernels[p.kind()][log2(queries)]
	callScores(k, y, q, p, pages, dim)
}

func (wideLanes) weigh(y, w Floats, queries int, p *Paged, pages []int32, first, keys, cols int) {
	kind, i := p.kind(), log2(queries)
	rest := 16
	if p.Blocks {
		rest = BlockColumns
	}
	for c := 0; c < cols; {
		k, n := weighKernels[kind][i], wideColumns
		if cols-c < wideColumns {
			k, n = restKernels[kind][i], min(rest, cols-c)
		}
		callWeigh(k, Floats{V: y.V[c:], Stride: y.Stride}, w, bytePtr(p.Data[p.bytes(c)+first*p.Row:]), p, pages, keys, n)
		c += n
	}
}

func log2(n int) int { return mathbits.Len(uint(n)) - 1 }

//go:noinline
func callScores(k scoresKernel, y Floats, q []float32, p *Paged, pages []int32, dim int) {
	k(ptr(y.V), int64(4*y.Stride), ptr(q), bytePtr(p.Data), unsafe.Pointer(unsafe.SliceData(pages)), int64(p.Page), int64(p.Row), int64(dim), int64(len(pages)))
}

//go:noinline
func callWeigh(k weighKernel, y, w Floats, v unsafe.Pointer, p *Paged, pages []int32, keys, cols int) {
	k(ptr(y.V), int64(4*y.Stride), ptr(w.V), int64(4*w.Stride), v, unsafe.Pointer(unsafe.SliceData(pages)), int64(p.Page), int64(p.Row), int64(keys), int64(cols))
}
