//go:build !purego

package gemm

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (bf16) packParts(dst []uint32, apart int, x mat.Floats, l PartsLayout) {
	columns, transposed, parts, n := !l.Lines, l.Lines != l.Panel, l.Parts, l.N
	to, step, from, stride, w, terms := asm.Words(dst), int64(4*apart), asm.Floats(x.V), int64(4*x.Stride), int64(l.Width), int64(n)
	switch {
	case columns && parts == RoundedParts:
		avx512ColumnParts1(to, step, from, stride, w, terms)
	case columns:
		avx512ColumnParts3(to, step, from, stride, w, terms)
	case parts == RoundedParts:
		avx512LineParts1(to, step, from, stride, w, terms)
	default:
		avx512LineParts3(to, step, from, stride, w, terms)
	}
	for part := 0; transposed && part < parts; part++ {
		avx512TransposeParts(asm.Words(dst[part*apart:]), int64(mat.CeilDiv(n, BlockK)))
	}
}

//go:noinline
func (bf16) packBFloat16(dst []uint32, w mat.Weights, columns, transposed bool, width, n int) {
	if columns {
		avx512HalfColumns(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(width), int64(n))
	} else {
		avx512HalfLines(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(width), int64(n))
	}
	if transposed {
		avx512TransposeParts(asm.Words(dst), int64(mat.CeilDiv(n, BlockK)))
	}
}

//go:noinline
func (t bf16) mulParts(c mat.Floats, a, b Packs, blocks, couples int, add bool) {
	if !t.tiles { // of one part
		t.tile(Tiles{C: c, W: a.V, WStride: a.Words, X: b.V, XStride: b.Words, Blocks: blocks, Count: couples, Add: add})
		return
	}
	kernel, goOn := amxRounded, int64(0)
	switch {
	case b.Parts == FloatParts:
		kernel = amxFloats
	case a.Parts == FloatParts:
		kernel = amxParts3x1
	}
	if add {
		goOn = 1
	}
	kernel(asm.Words(a.V), int64(4*a.Size()), asm.Words(b.V), int64(4*b.Size()), int64(4*a.Words), asm.Floats(c.V), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
}
