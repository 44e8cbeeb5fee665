//go:build !purego

package gemm

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// panelPiece limits the multiplications and additions of one call of a kernel.
const panelPiece = 1 << 22

func (a *simd) panelLanes() int {
	if a.wide {
		return 16
	}
	return 8
}

func (a *simd) panelRows() int {
	if a.wide {
		return 14
	}
	return 6
}

//go:noinline
func (a *simd) packLines(dst, x mat.Floats, width, high, n int) {
	ds, xs := int64(4*dst.Stride), int64(4*x.Stride)
	if a.wide {
		avx512Lines(asm.Floats(dst.V), ds, asm.Floats(x.V), xs, int64(width), int64(high), int64(n))
	} else {
		avx2Lines(asm.Floats(dst.V), ds, asm.Floats(x.V), xs, int64(width), int64(high), int64(n))
	}
}

//go:noinline
func (a *simd) packColumns(dst []float32, x mat.Floats, width, n int) {
	if a.wide {
		avx512Columns(asm.Floats(dst), asm.Floats(x.V), int64(4*x.Stride), int64(width), int64(n))
	} else {
		avx2Columns(asm.Floats(dst), asm.Floats(x.V), int64(4*x.Stride), int64(width), int64(n))
	}
}

func (a *simd) mulPanels(p Panels) {
	high := a.panelRows()
	step := max(panelPiece/(high*2*a.panelLanes()*p.N), 1) * high
	for r := 0; r < p.Rows; r += step {
		part := p
		part.A.V, part.C.V, part.Rows = p.A.V[r/high*p.A.Stride:], p.C.V[r*p.C.Stride:], min(step, p.Rows-r)
		a.product(&part)
	}
}

//go:noinline
func (a *simd) product(p *Panels) {
	ls, rs, cs, add := int64(4*p.A.Stride), int64(4*p.B.Stride), int64(4*p.C.Stride), asm.Flag(p.Add)
	if a.wide {
		avx512Product(asm.Floats(p.A.V), ls, asm.Floats(p.B.V), rs, asm.Floats(p.C.V), cs, int64(p.N), int64(p.Rows), int64(p.Cols), add)
	} else {
		avx2Product(asm.Floats(p.A.V), ls, asm.Floats(p.B.V), rs, asm.Floats(p.C.V), cs, int64(p.N), int64(p.Rows), int64(p.Cols), add)
	}
}
