package quant

import (
	"testing"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestUnpackingBlocksAllocated: a buffer for a part of a block was allocated with each row, 155,000 times a token for a model of
// 135 million weights.
func TestUnpackingBlocksAllocated(t *testing.T) {
	for p := Q8; p < Packings; p++ {
		columns := p.BlockColumns()
		w := &Packed{Packing: p, Codes: make([]byte, 2*2*p.BlockBytes()), Width: 2 * columns, Rows: 1, Columns: columns}
		k, dst, scratch := For(isa.Available()[0]), make([]float32, 4*columns), make([]float32, UnpackScratch)
		for _, v := range []View{{Packed: w, Rows: 2, Cols: 2 * columns}, {Packed: w, Col: 3, Rows: 1, Cols: columns}} {
			if n := testing.AllocsPerRun(5, func() { k.Unpack(mat.Floats{V: dst, Stride: v.Cols}, v, scratch) }); n != 0 {
				t.Errorf("%v: %v allocations for %d columns from column %d on", p, n, v.Cols, v.Col)
			}
		}
	}
}
