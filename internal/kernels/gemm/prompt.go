package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// The products of prompts are those of panels, see [Kernels.PanelLanes]: of tokens, which are the
// left operand, and of rows of weights, the right one.

// prompter is what a variant implements for them. Bounds have been checked.
type prompter interface {
	widenColumns(dst []float32, w mat.Weights, rows, n, ahead int)
	sumPanels(p PanelProduct)
}

// WidenColumns fills a panel with rows of weights: dst[k·lanes+i] = w[i][k] as float32 for k < n, i
// < rows, and zeros from rows on. It prefetches ahead bytes beyond the bytes that it reads.
func (s *Kernels) WidenColumns(dst []float32, w mat.Weights, rows, n, ahead int) {
	if n <= 0 {
		return
	}
	if rows > 0 {
		w.Check(rows, n)
	}
	s.ops.widenColumns(dst[:n*s.PanelLanes()], w, min(rows, s.PanelLanes()), n, ahead)
}

// PanelProduct is the operands of [Kernels.SumPanels]: panels A of the Rows rows of the left
// operand, which begin AStride elements apart, and two panels B of the Cols columns of the right
// one, N terms each. With Add the sums continue from C.
type PanelProduct struct {
	C          mat.Floats
	A          []float32
	AStride    int
	B          []float32
	Rows, Cols int
	N          int
	Add        bool
}

// SumPanels computes c[i][j] = Σ_k a(i, k) · b(k, j) for i < rows, j < cols, k < n. a are panels of
// PanelRows rows, which begin apart elements from each other, b two panels one after another of
// which cols may fill less. With add the sums continue from c. Each element is one sum in ascending
// order of k, however it is divided into calls and whichever rows and columns share them.
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
