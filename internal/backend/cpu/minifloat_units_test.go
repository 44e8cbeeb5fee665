package cpu

import (
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestUnitsOfOneTokenCrossedBlocksOfScales: no unit of a token ends inside a block of FP8 rows after another one began in it, unless
// the block consists of whole units. Kernels stopped at the ends of blocks, and had prefetched other rows than they continued with.
func TestUnitsOfOneTokenCrossedBlocksOfScales(t *testing.T) {
	for _, variant := range kernels.Names() {
		set, err := kernels.Select(variant)
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range []struct{ rows, cols, block int }{{2048, 2048, 128}, {5632, 2048, 128}, {2048, 5632, 128}, {256, 2048, 128}, {4096, 14336, 128}, {4096, 512, 16}, {64, 4096, 32}, {4096, 256, 48}} {
			w := matrix{rows: shape.rows, cols: shape.cols, step: 1, packed: quant.Packed{Packing: quant.E4M3, Width: shape.cols, ScaleFormat: mat.Float32, Rows: shape.block, Columns: 128}}
			if !set.QGEMM.HasMinifloat(&w.packed, 0, w.cols) || set.QGEMM.MinifloatRows(&w.packed, w.cols) == 0 {
				continue // no limit
			}
			for _, threads := range []int{1, 2, 7} {
				op := minifloat{linear{set: set, w: w, tokens: 1}}
				op.plan(threads)
				if n := op.unitRows; n%shape.block != 0 && shape.block%n != 0 {
					t.Errorf("%s, %+v, %d threads: got units of %d rows, want parts or multiples of %d", variant, shape, threads, n, shape.block)
				}
				if size := op.unitRows * shape.cols; size > 4*unitBytes {
					t.Errorf("%s, %+v, %d threads: got units of %d bytes, want at most %d", variant, shape, threads, size, 4*unitBytes)
				}
			}
		}
	}
}
