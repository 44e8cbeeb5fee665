package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Products of prompts use panels; see [Kernels.PanelLanes]. Tokens are the left operand, and rows
// of weights the right one.

// prompter is implemented by each variant for these products. The caller has checked bounds.
type prompter interface {
	widenColumns(dst []float32, w mat.Weights, rows, n, ahead int)
	sumPanels(p PanelProduct)
}

// WidenColumns fills a panel with rows of weights as float32: dst[k·lanes+i] = w[i][k] for k < n
// and i < rows, and 0 for i ≥ rows. It prefetches the bytes that lie ahead bytes after those that
// it reads.
func (s *Kernels) WidenColumns(dst []float32, w mat.Weights, rows, n, ahead int) {
	if n <= 0 {
		return
	}
	if rows > 0 {
		w.Check(rows, n)
	}
	s.ops.widenColumns(dst[:n*s.PanelLanes()], w, min(rows, s.PanelLanes()), n, ahead)
}

// PanelProduct holds the operands of [Kernels.SumPanels]. A is panels of the Rows rows of the
// left operand, which begin AStride elements apart. B is two panels of the Cols columns of the
// right operand. Each sum has N terms. If Add is set, the sums continue from C.
type PanelProduct struct {
	C          mat.Floats
	A          []float32
	AStride    int
	B          []float32
	Rows, Cols int
	N          int
	Add        bool
}

// SumPanels computes C[i][j] = Σ_k A(i, k) · B(k, j) for i < Rows, j < Cols and k < N. A has
// panels of PanelRows rows. B is two consecutive panels, and Cols may be fewer than they hold.
// Each element is one sum in ascending order of k, however the sum is divided into calls and
// whichever rows and columns are computed together.
func (s *Kernels) SumPanels(p PanelProduct) {
	if p.Rows <= 0 || p.Cols <= 0 || p.N <= 0 {
		return
	}
	size := p.N * s.PanelLanes()
	p.C.Check(p.Rows, p.Cols)
	_ = p.B[:2*size]
	_ = p.A[:(mat.CeilDiv(p.Rows, s.PanelRows())-1)*p.AStride+size]
	p.Cols = min(p.Cols, 2*s.PanelLanes())
	s.ops.sumPanels(p)
}

func (goOps) widenColumns(dst []float32, w mat.Weights, rows, n, _ int) {
	if rows < GoPanelLanes {
		clear(dst)
	}
	mat.Transpose(mat.Floats{V: dst, Stride: GoPanelLanes}, w, 0, rows, 0, n)
}

func (goOps) sumPanels(p PanelProduct) {
	var sums [GoPanelLanes]float32
	for i := range p.Rows {
		left := p.A[i/goPanelRows*p.AStride+i%goPanelRows:]
		for j := 0; j < p.Cols; j += GoPanelLanes {
			to, right := p.C.V[i*p.C.Stride+j:][:min(GoPanelLanes, p.Cols-j)], p.B[j*p.N:]
			clear(sums[:])
			if p.Add {
				copy(sums[:], to)
			}
			for k := range p.N {
				v, row := left[k*GoPanelLanes], (*[GoPanelLanes]float32)(right[k*GoPanelLanes:])
				for l := range sums {
					sums[l] += float32(v * row[l])
				}
			}
			copy(to, sums[:])
		}
	}
}
