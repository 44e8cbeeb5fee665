//go:build !purego

package kernels

import "unsafe"

// panelPiece bounds the multiplications and additions of one call of a product.
const panelPiece = 1 << 22

func (a *asm) panelLanes() int {
	if a.wide {
		return 16
	}
	return 8
}

func (a *asm) panelRows() int {
	if a.wide {
		return 14
	}
	return 6
}

//go:noinline
func (a *asm) packLines(dst []float32, x Floats, width, n int) {
	if a.wide {
		avx512Lines(ptr(dst), ptr(x.V), int64(4*x.Stride), int64(width), int64(n))
	} else {
		avx2Lines(ptr(dst), ptr(x.V), int64(4*x.Stride), int64(width), int64(n))
	}
}

//go:noinline
func (a *asm) packColumns(dst []float32, x Floats, width, n int) {
	if a.wide {
		avx512Columns(ptr(dst), ptr(x.V), int64(4*x.Stride), int64(width), int64(n))
	} else {
		avx2Columns(ptr(dst), ptr(x.V), int64(4*x.Stride), int64(width), int64(n))
	}
}

func (a *asm) mulPanels(c Floats, left, right []float32, rows, cols, n int, add bool) {
	high, lanes := a.panelRows(), a.panelLanes()
	goOn := int64(0)
	if add {
		goOn = 1
	}
	step := max(panelPiece/(high*2*lanes*n), 1) * high
	for r := 0; r < rows; r += step {
		a.product(ptr(left[r/high*n*lanes:]), ptr(right), 4*n*lanes, ptr(c.V[r*c.Stride:]), 4*c.Stride, n, min(step, rows-r), cols, goOn)
	}
}

//go:noinline
func (a *asm) product(left, right unsafe.Pointer, panel int, c unsafe.Pointer, cs, n, rows, cols int, add int64) {
	p, s := int64(panel), int64(cs)
	if a.wide {
		avx512Product(left, p, right, p, c, s, int64(n), int64(rows), int64(cols), add)
	} else {
		avx2Product(left, p, right, p, c, s, int64(n), int64(rows), int64(cols), add)
	}
}
