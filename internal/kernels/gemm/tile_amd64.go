//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

func (b bf16) couple(c mat.Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	if b.tiles {
		callCouple(c, w, ws, x, xs, blocks, groups, add)
		return
	}
	for i := range groups {
		b.tile(mat.Floats{V: c.V[i*2*PackRows*c.Stride:], Stride: c.Stride}, w[2*i*ws:], ws, x, xs, blocks, 1, add)
	}
}

//go:noinline
func callCouple(c mat.Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	amxCouple(asm.Words(w), int64(4*ws), asm.Words(x), int64(4*xs), asm.Floats(c.V), int64(4*c.Stride), int64(blocks), int64(groups), goOn)
}

//go:noinline
func (bf16) packTokens(dst []uint32, x mat.Floats, tokens, n int) {
	avx512bf16PackTokens(asm.Words(dst), asm.Floats(x.V), int64(4*x.Stride), int64(tokens), int64(n))
}

//go:noinline
func (bf16) packRows(dst []uint32, w mat.Weights, rows, n int) {
	avx512bf16PackRows(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n))
}

//go:noinline
func (b bf16) tile(c mat.Floats, w []uint32, ws int, x []uint32, xs, blocks, couples int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	if b.tiles {
		amxTile(asm.Words(w), int64(4*ws), asm.Words(x), int64(4*xs), asm.Floats(c.V), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
		return
	}
	const part = 8 // rows of a call
	for r := 0; r < 2*PackRows; r += part {
		// A row of a pack has 16 words of each block.
		at := r/PackRows*ws + r%PackRows*BlockK/2
		avx512bf16Tile(asm.Words(w[at:]), asm.Words(x), int64(4*xs), asm.Floats(c.V[r*c.Stride:]), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
	}
}

func (bf16) tileRows(c []float32, w mat.Weights, x []uint32, xs, panels, rows, blocks int, f Fetch) {
	from, apart := f.streams(rows * w.Stride)
	both := 0
	if panels > 1 && f.Quarters <= 2 {
		if both = rows / CoupleTokens; both > 0 {
			callBoth(c, w, x, xs, both, blocks, from, apart, f.Quarters)
		}
	}
	if left := rows - both*CoupleTokens; left > 0 {
		c, w.Data = c[both*CoupleTokens*CoupleTokens:], w.Data[both*CoupleTokens*w.Stride:]
		callTileRows(c, w, x, xs, panels, left/PackRows, blocks, from, apart, f.Quarters/2)
	}
}

// streams is where a kernel with so many bytes of weights asks for more: 8 streams of neighbouring
// lines, which come to their pages one after another, as the first lines of each take their time.
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
func callBoth(c []float32, w mat.Weights, x []uint32, xs, groups, blocks int, from unsafe.Pointer, apart, lines int) {
	amxBoth(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), int64(4*xs), asm.Floats(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
}

//go:noinline
func callTileRows(c []float32, w mat.Weights, x []uint32, xs, panels, groups, blocks int, from unsafe.Pointer, apart, lines int) {
	if panels > 1 {
		amxRows2(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), int64(4*xs), asm.Floats(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
		return
	}
	amxRows1(asm.Bytes(w.Data), int64(w.Stride), asm.Words(x), int64(4*xs), asm.Floats(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
}

//go:noinline
func (bf16) tilePack(c mat.Floats, w, x []uint32, xs, panels, blocks int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	if panels > 1 {
		amxPack2(asm.Words(w), asm.Words(x), int64(4*xs), asm.Floats(c.V), int64(4*c.Stride), int64(blocks), goOn)
		return
	}
	amxPack1(asm.Words(w), asm.Words(x), int64(4*xs), asm.Floats(c.V), int64(4*c.Stride), int64(blocks), goOn)
}

//go:noinline
func (bf16) turn(y, c mat.Floats, bias []float32, rows, tokens int) {
	avx512bf16Turn(asm.Floats(y.V), int64(4*y.Stride), asm.Floats(c.V), int64(4*c.Stride), asm.Floats(bias), int64(rows), int64(tokens))
}
