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

func TestAddingCodesAllocatesNothing(t *testing.T) {
	for _, variant := range isa.Available() {
		for _, p := range []Packing{Int4Rows, Int8Rows, Int4Columns} {
			w := &View{Packed: &Packed{Packing: p, Codes: make([]byte, 16*SumColumns), Scales: make([]byte, 4*SumColumns), Zeros: make([]byte, SumColumns), Width: SumColumns, Rows: 16, Columns: 1}, Rows: 16, Cols: SumColumns}
			k, lanes, scratch := For(variant), make([]float32, variant.Lanes*SumColumns), make([]float32, SumScratch(w))
			if n := testing.AllocsPerRun(5, func() { k.AddCodes(lanes, mat.Floats{V: scratch[:16], Stride: 16}, 1, w, scratch) }); n != 0 {
				t.Errorf("%s, %v: %v allocations", variant.Name, p, n)
			}
		}
	}
}

func TestDotsOfRowsAllocateNothing(t *testing.T) {
	for _, variant := range isa.Available() {
		for _, p := range []Packing{Int4Packed, Int8, Int8Packed, BnbInt8, NVFP4, NF4} {
			w := &View{Packed: &Packed{Packing: p, Codes: make([]byte, 5*32), Scales: make([]byte, 5*8), ScaleFormat: mat.Float32, Width: 32, Rows: 1, Columns: 32}, Step: 1, Rows: 5, Cols: 32}
			k, y, x, scratch := For(variant), make([]float32, 3*5), make([]float32, 3*32), make([]float32, DotScratch(w, 3))
			if !k.TakesDots(w) {
				continue
			}
			if n := testing.AllocsPerRun(5, func() { k.DotRows(mat.Floats{V: y, Stride: 5}, w, mat.Floats{V: x, Stride: 32}, 3, scratch) }); n != 0 {
				t.Errorf("%s, %v: %v allocations", variant.Name, p, n)
			}
		}
	}
}
