//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// vnni multiplies 8-bit integers with AVX-512 VNNI.
type vnni struct{}

func (vnni) words(quant.Packing) int { return 10 }

//go:noinline
func (vnni) narrow(p quant.Packing, dst []uint32, src []float32) {
	avx512vnniNarrow(asm.Words(dst), asm.Floats(src), int64(len(src)/quant.BlockColumns), int64(p.Zero()))
}

// A bandsKernel multiplies a fixed number of bands, of 16 interleaved rows each, by a fixed number of tokens. A bandsTile
// is a kernel with its number of tokens.
type (
	bandsKernel func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, blocks, add int64)
	bandsTile   struct {
		tokens int
		kernel bandsKernel
	}
)

// The kernels by number of bands (eights, fours, quads, pairs, single) and format. Tiles are in descending order of
// tokens, and the last has one, except for quads, which are for 8 tokens only.
var (
	singleQ8 = []bandsTile{{1, avx512vnniMulQ81x1}}
	singleQ4 = []bandsTile{{1, avx512vnniMulQ41x1}}
	quadsQ8  = []bandsTile{{8, avx512vnniMulQ84x8}}
	eightsQ8 = []bandsTile{{1, avx512vnniMulQ88x1}}
	eightsQ4 = []bandsTile{{1, avx512vnniMulQ48x1}}
	foursQ8  = []bandsTile{{2, avx512vnniMulQ84x2}, {1, avx512vnniMulQ84x1}}
	foursQ4  = []bandsTile{{2, avx512vnniMulQ44x2}, {1, avx512vnniMulQ44x1}}
	pairsQ8  = []bandsTile{{8, avx512vnniMulQ82x8}, {6, avx512vnniMulQ82x6}, {4, avx512vnniMulQ82x4}, {2, avx512vnniMulQ82x2}, {1, avx512vnniMulQ82x1}}
	pairsQ4  = []bandsTile{{8, avx512vnniMulQ42x8}, {6, avx512vnniMulQ42x6}, {4, avx512vnniMulQ42x4}, {2, avx512vnniMulQ42x2}, {1, avx512vnniMulQ42x1}}
)

func (v vnni) mul(p quant.Packing, y mat.Floats, w []byte, apart, bands int, x mat.Pairs, tokens, blocks int, add bool) {
	eights, fours, pairs, singles := eightsQ8, foursQ8, pairsQ8, singleQ8
	if p == quant.Q4 {
		eights, fours, pairs, singles = eightsQ4, foursQ4, pairsQ4, singleQ4
	}
	b, most := 0, fetch.Rows(p.FetchRole())
	for ; tokens == 1 && most == 1 && b < bands; b++ {
		mulBands(singles, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for ; tokens == 1 && most == 8 && b+8 <= bands; b += 8 {
		mulBands(eights, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for ; p == quant.Q8 && tokens == 8 && b+4 <= bands; b += 4 {
		mulBands(quadsQ8, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for ; tokens <= fours[0].tokens && b+4 <= bands; b += 4 {
		mulBands(fours, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for ; b+2 <= bands; b += 2 {
		mulBands(pairs, from(y, b*quant.InterleavedRows), w[b*apart:], apart, x, tokens, blocks, add)
	}
	for t := 0; t < tokens && b < bands; t++ {
		to := y.V[t*y.Stride+b*quant.InterleavedRows:][:quant.InterleavedRows]
		v.edge(p, to, w[b*apart:], quant.InterleavedRows, 0, 1, x.V[t*x.Stride:], blocks, add)
	}
}

func mulBands(tiles []bandsTile, y mat.Floats, w []byte, apart int, x mat.Pairs, tokens, blocks int, add bool) {
	for t := 0; t < tokens; t += tiles[0].tokens {
		for tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		callBands(tiles[0].kernel, asm.Bytes(w), apart, asm.Words(x.V[t*x.Stride:]), x.Stride, asm.Floats(y.V[t*y.Stride:]), y.Stride, blocks, add)
	}
}

//go:noinline
func callBands(k bandsKernel, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, blocks int, add bool) {
	k(w, int64(ws), x, int64(4*xs), y, int64(4*ys), int64(blocks), asm.Flag(add))
}

// lanes holds the sums of all rows of a band. A product may need only rows lane, lane+step, ….
type lanes [quant.InterleavedRows]float32

// load sets lanes to y.
func (l *lanes) load(y []float32, lane, step int) {
	for i, v := range y {
		l[lane+i*step] = v
	}
}

// store sets y to lanes.
func (l *lanes) store(y []float32, lane, step int) {
	for i := range y {
		y[i] = l[lane+i*step]
	}
}

//go:noinline
func (vnni) edge(p quant.Packing, y []float32, w []byte, rows, lane, step int, x []uint32, blocks int, add bool) {
	var sums lanes
	if add {
		sums.load(y, lane, step)
	}
	if p == quant.Q8 {
		avx512vnniEdgeQ8(asm.Bytes(w), int64(rows), asm.Words(x), unsafe.Pointer(&sums), int64(blocks))
	} else {
		avx512vnniEdgeQ4(asm.Bytes(w), int64(rows), asm.Words(x), unsafe.Pointer(&sums), int64(blocks))
	}
	sums.store(y, lane, step)
}

//go:noinline
func (vnni) stored(p quant.Packing, y []float32, w []byte, stride int, x []uint32, blocks int) {
	if p == quant.Q8 {
		avx512vnniStoredQ8(asm.Bytes(w), int64(stride), asm.Words(x), asm.Floats(y), int64(blocks))
	} else {
		avx512vnniStoredQ4(asm.Bytes(w), int64(stride), asm.Words(x), asm.Floats(y), int64(blocks))
	}
}
