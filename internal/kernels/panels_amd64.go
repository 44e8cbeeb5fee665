//go:build !purego

package kernels

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

func (a *asm) mulPanels(c, left, right Floats, rows, cols, n int, add bool) {
	high, lanes := a.panelRows(), a.panelLanes()
	goOn := int64(0)
	if add {
		goOn = 1
	}
	step := max(panelPiece/(high*2*lanes*n), 1) * high
	for r := 0; r < rows; r += step {
		a.product(Floats{left.V[r/high*left.Stride:], left.Stride}, right, Floats{c.V[r*c.Stride:], c.Stride}, n, min(step, rows-r), cols, goOn)
	}
}

//go:noinline
func (a *asm) product(left, right, c Floats, n, rows, cols int, add int64) {
	ls, rs, cs := int64(4*left.Stride), int64(4*right.Stride), int64(4*c.Stride)
	if a.wide {
		avx512Product(ptr(left.V), ls, ptr(right.V), rs, ptr(c.V), cs, int64(n), int64(rows), int64(cols), add)
	} else {
		avx2Product(ptr(left.V), ls, ptr(right.V), rs, ptr(c.V), cs, int64(n), int64(rows), int64(cols), add)
	}
}
