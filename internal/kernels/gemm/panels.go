package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// A matrix product takes its operands in panels. A panel has a row of [Kernels.PanelLanes]
// numbers for each k of the sum.

// panels is implemented by each variant. The caller has checked bounds.
type panels interface {
	panelLanes() int
	panelRows() int
	packLines(dst mat.Floats, x mat.Floats, width, high, n int)
	packColumns(dst []float32, x mat.Floats, width, n int)
	mulPanels(p Panels)
}

// PanelLanes returns how many numbers a panel has for each k.
func (s *Kernels) PanelLanes() int { return s.ops.panelLanes() }

// PanelRows returns the number of rows of the left operand in a panel, at most PanelLanes. A
// panel of the right operand holds PanelLanes columns.
func (s *Kernels) PanelRows() int { return s.ops.panelRows() }

// PackLines fills panels with the columns of x. Each panel takes the next high of the width
// columns: in the first one, dst[k·lanes+i] = x[k][i] for k < n and i < min(width, high), and 0
// for greater i. Panels are dst.Stride numbers apart. If width or n is 0, PackLines does nothing.
func (s *Kernels) PackLines(dst, x mat.Floats, width, high, n int) {
	if n <= 0 || width <= 0 {
		return
	}
	high = min(high, s.PanelLanes())
	x.Check(n, width)
	dst.Check(mat.CeilDiv(width, high), n*s.PanelLanes())
	s.ops.packLines(dst, x, width, high, n)
}

// PackColumns fills a panel with x transposed: dst[k·lanes+i] = x[i][k] for k < n and i < width,
// and 0 for i ≥ width.
func (s *Kernels) PackColumns(dst []float32, x mat.Floats, width, n int) {
	if n <= 0 {
		return
	}
	if width > 0 {
		x.Check(width, n)
	}
	s.ops.packColumns(dst[:n*s.PanelLanes()], x, min(width, s.PanelLanes()), n)
}

// Panels holds the operands of [Kernels.MulPanels]. A is panels of the Rows rows of the left
// operand, which begin A.Stride numbers apart. B is two panels of the Cols columns of the right
// operand. Each sum has N terms. The second panel of B may be empty. If Add is set, the sums are
// added to C.
type Panels struct {
	C, A, B       mat.Floats
	Rows, Cols, N int
	Add           bool
}

// MulPanels computes C[i][j] = Σ_k A(i, k) · B(k, j) in ascending order of k.
func (s *Kernels) MulPanels(p Panels) {
	if p.Rows <= 0 || p.Cols <= 0 || p.N <= 0 {
		return
	}
	size := p.N * s.PanelLanes()
	p.C.Check(p.Rows, p.Cols)
	p.B.Check(2, size)
	p.A.Check(mat.CeilDiv(p.Rows, s.PanelRows()), size)
	p.Cols = min(p.Cols, 2*s.PanelLanes())
	s.ops.mulPanels(p)
}

// The panels of the Go variant.
const (
	GoPanelLanes = 8
	goPanelRows  = 6
)

func (goOps) panelLanes() int { return GoPanelLanes }

func (goOps) panelRows() int { return goPanelRows }

func (goOps) packLines(dst, x mat.Floats, width, high, n int) {
	for k := range n {
		for at := 0; at < width; at += high {
			row := dst.V[at/high*dst.Stride+k*GoPanelLanes:][:GoPanelLanes]
			clear(row[copy(row, x.V[k*x.Stride+at:][:min(high, width-at)]):])
		}
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

func (goOps) mulPanels(p Panels) {
	a, b, c := p.A, p.B, p.C
	for i := range p.Rows {
		left := a.V[i/goPanelRows*a.Stride+i%goPanelRows:]
		for j := 0; j < p.Cols; j += GoPanelLanes {
			sums := goLine(left, b.V[j/GoPanelLanes*b.Stride:][:p.N*GoPanelLanes])
			for l, to := range c.V[i*c.Stride+j:][:min(GoPanelLanes, p.Cols-j)] {
				if p.Add {
					sums[l] += to
				}
				c.V[i*c.Stride+j+l] = sums[l]
			}
		}
	}
}

// goLine computes a row of a product. Consecutive terms in a are as many numbers apart as a panel
// has lanes.
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
