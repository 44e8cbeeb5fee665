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

	// A sumTile handles panels of so many rows, or of fewer.
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

func (a *simd) sumPanels(c mat.Floats, left []float32, apart int, right []float32, rows, cols, n int, add bool) {
	tiles, high, lanes := avx2Sums, a.panelRows(), a.panelLanes()
	if a.wide {
		tiles = avx512Sums
	}
	step := max(panelPiece/(high*2*lanes*n), 1) * high
	for r := 0; r < rows; {
		part := min(step, (rows-r)/high*high)
		tile := &tiles[len(tiles)-1]
		if part == 0 { // the last panel: as few rows as will do
			part = rows - r
			for i := range tiles {
				if tile = &tiles[i]; tile.rows >= part {
					break
				}
			}
		}
		to := mat.Floats{V: c.V[r*c.Stride:], Stride: c.Stride}
		callSumPanels(tile.kernel, left[r/high*apart:], apart, right, lanes, to, part, cols, n, add)
		r += part
	}
}

//go:noinline
func callWidenColumns(k widenColumnsKernel, dst []float32, w mat.Weights, rows, n, ahead int) {
	k(asm.Floats(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n), int64(ahead))
}

//go:noinline
func callSumPanels(k sumPanelsKernel, a []float32, apart int, b []float32, lanes int, c mat.Floats, rows, cols, n int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	k(asm.Floats(a), int64(4*apart), asm.Floats(b), int64(4*lanes*n), asm.Floats(c.V), int64(4*c.Stride), int64(n), int64(rows), int64(cols), goOn)
}
