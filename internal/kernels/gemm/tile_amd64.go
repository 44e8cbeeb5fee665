//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/mat"
)

func (b bf16) couple(t Tiles) {
	if b.tiles {
		callCouple(&t)
		return
	}
	part := t
	for i := range t.Count {
		part.C.V, part.W, part.Count = t.C.V[i*2*PackRows*t.C.Stride:], t.W[2*i*t.WStride:], 1
		b.tile(part)
	}
}

//go:noinline
func callCouple(t *Tiles) {
	amxPacks2(asm.Words(t.W), int64(4*t.WStride), asm.Words(t.X), int64(4*t.XStride), asm.Floats(t.C.V), int64(4*t.C.Stride), int64(t.Blocks), int64(2*t.Count), asm.Flag(t.Add))
}

//go:noinline
func (bf16) packTokens(dst []uint32, x mat.Floats, tokens, n int) {
	if tokens == 0 {
		clear(dst)
		return
	}
	avx512bf16PackTokens(asm.Words(dst), asm.Floats(x.V), int64(4*x.Stride), int64(tokens), int64(n))
}

//go:noinline
func (bf16) packRows(dst []uint32, w mat.Weights, rows, n int) {
	if fetch.InWholeRows(fetch.Packing) {
		avx512bf16PackWholeRows(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n))
		return
	}
	avx512bf16PackRows(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n))
}

//go:noinline
func (b bf16) tile(t Tiles) {
	if b.tiles {
		part := t
		for i := range t.Count {
			part.C.V, part.X, part.Count = t.C.V[i*CoupleTokens:], t.X[2*i*t.XStride:], 1
			callCouple(&part)
		}
		return
	}
	c, w, x, xs, blocks, couples, add := t.C, t.W, t.X, t.XStride, int64(t.Blocks), int64(t.Count), asm.Flag(t.Add)
	const part = 8 // rows per call
	for r := 0; r < 2*PackRows; r += part {
		// A row of a pack has 16 words for each block.
		rows := asm.Words(w[r/PackRows*t.WStride+r%PackRows*BlockK/2:])
		next := rows // which is in a cache, so that its prefetch does nothing
		if at := 2 * r * t.Blocks * BlockK; at < len(t.Next) {
			next = asm.Bytes(t.Next[at:])
		}
		avx512bf16Tile(rows, asm.Words(x), int64(4*xs), asm.Floats(c.V[r*c.Stride:]), int64(4*c.Stride), blocks, couples, add, next)
	}
}

//go:noinline
func (bf16) tileRows(t RowTiles) {
	from, apart := t.Fetch.streams(t.Rows * t.W.Stride)
	groups, lines, step := int64(t.Rows/PackRows), int64(t.Fetch.Quarters/2), int64(t.step())
	w, ws, x, xs, c, blocks, next := asm.Bytes(t.W.Data), int64(t.W.Stride), asm.Words(t.X), int64(4*t.XStride), asm.Floats(t.C), int64(t.Blocks), int64(apart)
	switch t.Panels {
	case 1:
		amxRows1(w, ws, x, xs, c, blocks, groups, from, next, lines, step)
	case 2:
		amxRows2(w, ws, x, xs, c, blocks, groups, from, next, lines, step)
	case 3:
		amxRows3(w, ws, x, xs, c, blocks, groups, from, next, lines, step)
	default:
		amxRows4(w, ws, x, xs, c, blocks, groups, from, next, lines, step)
	}
}

// step returns the blocks of equal steps whose panels stay in half of a first-level cache of 48 KiB, while weights stream through
// the other half. It returns all blocks where memory bounds the kernel, because it prefetches all of the next weights beside few
// tokens, and where 16 rows are all that read the panels.
func (t *RowTiles) step() int {
	const most = 24 // tiles, of 1 KiB
	if t.Fetch.Quarters == 4 && t.Panels <= 2 || t.Rows <= PackRows {
		return t.Blocks
	}
	return mat.CeilDiv(t.Blocks, mat.CeilDiv(t.Blocks*t.Panels, most))
}

// streams returns where a kernel for the given number of bytes of weights prefetches: 8 streams
// of adjacent cache lines. The streams reach new pages one after another, because the first lines
// of a page take longer.
func (f *Fetch) streams(bytes int) (from unsafe.Pointer, apart int) {
	const streams, page = 8, 4096
	each := bytes / streams
	if apart = each; each >= page {
		apart = (each+page/2)/page*page + page/streams
	}
	if len(f.Next) == 0 {
		f.Quarters = 0
		return nil, 0
	}
	return unsafe.Add(asm.Bytes(f.Next), each/4*f.Done), apart
}

//go:noinline
func (bf16) tilePack(t Tiles) {
	if t.Count > 1 {
		amxPacks2(asm.Words(t.W), 0, asm.Words(t.X), int64(4*t.XStride), asm.Floats(t.C.V), int64(4*t.C.Stride), int64(t.Blocks), 1, asm.Flag(t.Add))
		return
	}
	amxPacks1(asm.Words(t.W), 0, asm.Words(t.X), 0, asm.Floats(t.C.V), int64(4*t.C.Stride), int64(t.Blocks), 1, asm.Flag(t.Add))
}

//go:noinline
func (bf16) transposeSums(y, c mat.Floats, bias []float32, rows, tokens int) {
	avx512bf16TransposeAddBias(asm.Floats(y.V), int64(4*y.Stride), asm.Floats(c.V), int64(4*c.Stride), asm.Floats(bias), int64(rows), int64(tokens))
}
