package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// A product of matrices takes its operands in panels: for each k of the sum, a row of
// [Kernels.PanelLanes] numbers.

// panels is what a variant implements for packed products. Bounds have been checked.
type panels interface {
	panelLanes() int
	panelRows() int
	packLines(dst []float32, x mat.Floats, width, n int)
	packColumns(dst []float32, x mat.Floats, width, n int)
	mulPanels(c, a, b mat.Floats, rows, cols, n int, add bool)
}

// PanelLanes is how many numbers a panel has for each k.
func (s *Kernels) PanelLanes() int { return s.ops.panelLanes() }

// PanelRows is how many rows of the left operand a panel holds, at most PanelLanes. A
// panel of the right operand holds PanelLanes columns.
func (s *Kernels) PanelRows() int { return s.ops.panelRows() }

// PackLines fills a panel with the rows of x: dst[k·lanes+i] = x[k][i] for k < n, i <
// width, and zeros from width on.
func (s *Kernels) PackLines(dst []float32, x mat.Floats, width, n int) {
	if n <= 0 {
		return
	}
	x.Check(n, width)
	s.ops.packLines(dst[:n*s.PanelLanes()], x, min(width, s.PanelLanes()), n)
}

// PackColumns fills a panel with x turned: dst[k·lanes+i] = x[i][k] for k < n, i < width,
// and zeros from width on.
func (s *Kernels) PackColumns(dst []float32, x mat.Floats, width, n int) {
	if n <= 0 {
		return
	}
	if width > 0 {
		x.Check(width, n)
	}
	s.ops.packColumns(dst[:n*s.PanelLanes()], x, min(width, s.PanelLanes()), n)
}

// MulPanels computes c[i][j] = Σ_k a(i, k) · b(k, j) for i < rows, j < cols, k < n, in
// ascending order of k. a are panels of PanelRows rows, a.Stride apart, b two panels of
// which cols may fill less. With add the sums are added to what c has.
func (s *Kernels) MulPanels(c, a, b mat.Floats, rows, cols, n int, add bool) {
	if rows <= 0 || cols <= 0 || n <= 0 {
		return
	}
	size := n * s.PanelLanes()
	c.Check(rows, cols)
	b.Check(2, size)
	a.Check(mat.CeilDiv(rows, s.PanelRows()), size)
	s.ops.mulPanels(c, a, b, rows, min(cols, 2*s.PanelLanes()), n, add)
}

// The panels of the Go variant.
const (
	GoPanelLanes = 8
	goPanelRows  = 6
)

func (goOps) panelLanes() int { return GoPanelLanes }

func (goOps) panelRows() int { return goPanelRows }

func (goOps) packLines(dst []float32, x mat.Floats, width, n int) {
	for k := range n {
		row := dst[k*GoPanelLanes:][:GoPanelLanes]
		clear(row[copy(row, x.V[k*x.Stride:][:width]):])
	}
}

func (goOps) packColumns(dst []float32, x mat.Floats, width, n int) {
	for i := range GoPanelLanes {
		for k := range n {
			v := float32(0)
			if i < width {
				v = x.V[i*x.Stride+k]
			}
			dst[k*GoPanelLanes+i] = v
		}
	}
}

func (goOps) mulPanels(c, a, b mat.Floats, rows, cols, n int, add bool) {
	for i := range rows {
		left := a.V[i/goPanelRows*a.Stride+i%goPanelRows:]
		for j := 0; j < cols; j += GoPanelLanes {
			sums := goLine(left, b.V[j/GoPanelLanes*b.Stride:][:n*GoPanelLanes])
			for l, to := range c.V[i*c.Stride+j:][:min(GoPanelLanes, cols-j)] {
				if add {
					sums[l] += to
				}
				c.V[i*c.Stride+j+l] = sums[l]
			}
		}
	}
}

// goLine is a row of a product: a has its number for each k a panel's lanes apart.
func goLine(a, b []float32) [GoPanelLanes]float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for k := 0; k < len(b); k += GoPanelLanes {
		v, row := a[k], (*[GoPanelLanes]float32)(b[k:])
		s0 += float32(v * row[0])
		s1 += float32(v * row[1])
		s2 += float32(v * row[2])
		s3 += float32(v * row[3])
		s4 += float32(v * row[4])
		s5 += float32(v * row[5])
		s6 += float32(v * row[6])
		s7 += float32(v * row[7])
	}
	return [GoPanelLanes]float32{s0, s1, s2, s3, s4, s5, s6, s7}
}
