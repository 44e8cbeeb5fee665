//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

type (
	widenColumnsKernel func(dst, w unsafe.Pointer, ws, rows, n, ahead int64)
	sumPanelsKernel    func(a unsafe.Pointer, as int64, b unsafe.Pointer, bs int64, c unsafe.Pointer, cs, n, rows, cols, add int64)

	// A sumTile is a kernel for panels of up to a number of rows.
	sumTile struct {
		rows   int
		kernel sumPanelsKernel
	}
)

var (
	avx512WidenColumns = [mat.Formats]widenColumnsKernel{mat.BFloat16: avx512WidenColumnsBF16, mat.Float16: avx512WidenColumnsF16, mat.Float32: avx512WidenColumnsF32}
	avx2WidenColumns   = [mat.Formats]widenColumnsKernel{mat.BFloat16: avx2WidenColumnsBF16, mat.Float16: avx2WidenColumnsF16, mat.Float32: avx2WidenColumnsF32}

	avx512Sums = []sumTile{{2, avx512SumPanels2}, {4, avx512SumPanels4}, {8, avx512SumPanels8}, {14, avx512SumPanels}}
	avx2Sums   = []sumTile{{2, avx2SumPanels2}, {4, avx2SumPanels4}, {6, avx2SumPanels}}
)

func (a *simd) widenColumns(dst []float32, w mat.Weights, rows, n, ahead int) {
	if a.wide {
		callWidenColumns(avx512WidenColumns[w.Format], dst, w, rows, n, ahead)
		return
	}
	lanes, whole := a.panelLanes(), n&^7
	if whole > 0 {
		callWidenColumns(avx2WidenColumns[w.Format], dst, w, rows, whole, ahead)
	}
	if whole < n {
		clear(dst[whole*lanes:])
		mat.Transpose(mat.Floats{V: dst, Stride: lanes}, w, 0, rows, whole, n)
	}
}

func (a *simd) sumPanels(p PanelProduct) {
	tiles, high, lanes := avx2Sums, a.panelRows(), a.panelLanes()
	if a.wide {
		tiles = avx512Sums
	}
	step := max(panelPiece/(high*2*lanes*p.N), 1) * high
	for r := 0; r < p.Rows; {
		part := p
		part.Rows = min(step, (p.Rows-r)/high*high)
		tile := &tiles[len(tiles)-1]
		if part.Rows == 0 { // the last panel: the smallest kernel that is large enough
			part.Rows = p.Rows - r
			for i := range tiles {
				if tile = &tiles[i]; tile.rows >= part.Rows {
					break
				}
			}
		}
		part.A, part.C.V = p.A[r/high*p.AStride:], p.C.V[r*p.C.Stride:]
		callSumPanels(tile.kernel, &part, lanes)
		r += part.Rows
	}
}

//go:noinline
func callWidenColumns(k widenColumnsKernel, dst []float32, w mat.Weights, rows, n, ahead int) {
	k(asm.Floats(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n), int64(ahead))
}

//go:noinline
func callSumPanels(k sumPanelsKernel, p *PanelProduct, lanes int) {
	k(asm.Floats(p.A), int64(4*p.AStride), asm.Floats(p.B), int64(4*lanes*p.N), asm.Floats(p.C.V), int64(4*p.C.Stride), int64(p.N), int64(p.Rows), int64(p.Cols), asm.Flag(p.Add))
}
