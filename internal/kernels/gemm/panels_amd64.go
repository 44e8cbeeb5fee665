//go:build !purego

package gemm

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// panelPiece bounds the multiplications and additions of one call of a product.
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
func (a *simd) packLines(dst []float32, x mat.Floats, width, n int) {
	if a.wide {
		avx512Lines(asm.Floats(dst), asm.Floats(x.V), int64(4*x.Stride), int64(width), int64(n))
	} else {
		avx2Lines(asm.Floats(dst), asm.Floats(x.V), int64(4*x.Stride), int64(width), int64(n))
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

func (a *simd) mulPanels(c, left, right mat.Floats, rows, cols, n int, add bool) {
	high, lanes := a.panelRows(), a.panelLanes()
	goOn := int64(0)
	if add {
		goOn = 1
	}
	step := max(panelPiece/(high*2*lanes*n), 1) * high
	for r := 0; r < rows; r += step {
		a.product(mat.Floats{V: left.V[r/high*left.Stride:], Stride: left.Stride}, right, mat.Floats{V: c.V[r*c.Stride:], Stride: c.Stride}, n, min(step, rows-r), cols, goOn)
	}
}

//go:noinline
func (a *simd) product(left, right, c mat.Floats, n, rows, cols int, add int64) {
	ls, rs, cs := int64(4*left.Stride), int64(4*right.Stride), int64(4*c.Stride)
	if a.wide {
		avx512Product(asm.Floats(left.V), ls, asm.Floats(right.V), rs, asm.Floats(c.V), cs, int64(n), int64(rows), int64(cols), add)
	} else {
		avx2Product(asm.Floats(left.V), ls, asm.Floats(right.V), rs, asm.Floats(c.V), cs, int64(n), int64(rows), int64(cols), add)
	}
}
