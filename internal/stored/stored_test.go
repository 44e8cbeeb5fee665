package stored

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestSlabTakesItsScalesAlong: an expert of a quantised stack has its own codes and its own
// scales, of its own number.
func TestSlabTakesItsScalesAlong(t *testing.T) {
	codes := &loader.Tensor{Name: "blocks", DType: meta.Uint8, Shape: []int{3, 4, 2, 16}, Size: 3 * 4 * 2 * 16}
	scales := &loader.Tensor{Name: "scales", DType: meta.Uint8, Shape: []int{3, 4, 2}, Size: 3 * 4 * 2}
	whole := New(loader.BoundTensor{Tensor: codes, Expert: -1, Slabs: true, Into: meta.RowRange{Begin: 4, End: 8}, Quant: &meta.Quant{Format: meta.QuantMXFP4, Rows: 1, Columns: 32}, Scales: scales})
	if got := whole.Part.Shape(); !slices.Equal(got, []int{3, 4, 64}) || whole.Size != codes.Size+scales.Size {
		t.Fatalf("a stack of %v in %d bytes", got, whole.Size)
	}
	one := whole.Slab(2)
	if got := one.Part.Shape(); !slices.Equal(got, []int{4, 64}) || one.Part.Quant.Scales.Dims[0] != 8 {
		t.Errorf("a slab of %v with %d scales", got, one.Part.Quant.Scales.Dims[0])
	}
	if want := []Range{{Tensor: codes, Begin: 256, Size: 128}, {Tensor: scales, Begin: 16, Size: 8}}; !slices.Equal(one.Ranges, want) || one.Size != 136 {
		t.Errorf("ranges %v of %d bytes, want %v", one.Ranges, one.Size, want)
	}
	if want := (meta.RowRange{Begin: 4, End: 8}); one.Part.Into != want {
		t.Errorf("a slab fills rows %v, want %v", one.Part.Into, want)
	}
	part := one.NewPart()
	for i, r := range one.Ranges {
		Set(&part, i, make([]byte, r.Size))
	}
	if len(part.Data) != 128 || len(part.Quant.Scales.Data) != 8 || len(whole.Part.Quant.Scales.Data) != 0 {
		t.Errorf("%d bytes of codes and %d of scales; the stack's are %d", len(part.Data), len(part.Quant.Scales.Data), len(whole.Part.Quant.Scales.Data))
	}
}

// TestRowsKeepWhatAllRowsShare: bands of rows of a matrix with one scale, and of one with a number for the whole
// matrix, each bring that number along; before, the second band began behind it.
func TestRowsKeepWhatAllRowsShare(t *testing.T) {
	codes := &loader.Tensor{Name: "w", DType: meta.Float8E4M3, Shape: []int{64, 48}, Size: 64 * 48}
	scale := &loader.Tensor{Name: "w_scale", DType: meta.Float32, Size: 4}
	whole := New(loader.BoundTensor{Tensor: codes, Expert: -1, Quant: &meta.Quant{Format: meta.QuantFP8, Rows: meta.AllRows, Columns: 48}, Scales: scale})
	band, ok := whole.Rows(16, 48)
	if want := []Range{{Tensor: codes, Begin: 16 * 48, Size: 32 * 48}, {Tensor: scale, Begin: 0, Size: 4}}; !ok || !slices.Equal(band.Ranges, want) {
		t.Errorf("one scale: %v, %v, want %v", band.Ranges, ok, want)
	}
	packed := &loader.Tensor{Name: "w_packed", DType: meta.Uint8, Shape: []int{64, 24}, Size: 64 * 24}
	scales := &loader.Tensor{Name: "w_scale", DType: meta.Float8E4M3, Shape: []int{64, 3}, Size: 64 * 3}
	global := &loader.Tensor{Name: "w_global_scale", DType: meta.Float32, Shape: []int{1}, Size: 4}
	whole = New(loader.BoundTensor{Tensor: packed, Expert: -1, Quant: &meta.Quant{Format: meta.QuantNVFP4, Rows: 1, Columns: 16}, Scales: scales, Global: global})
	band, ok = whole.Rows(32, 64)
	if want := []Range{{Tensor: packed, Begin: 32 * 24, Size: 32 * 24}, {Tensor: scales, Begin: 32 * 3, Size: 32 * 3}, {Tensor: global, Begin: 0, Size: 4}}; !ok || !slices.Equal(band.Ranges, want) {
		t.Errorf("a global scale: %v, %v, want %v", band.Ranges, ok, want)
	}
	part := band.NewPart()
	for i, r := range band.Ranges {
		Set(&part, i, make([]byte, r.Size))
	}
	if !part.Quant.Holds(part.Data, 32) {
		t.Error("the band lacks some of its tensors")
	}
}

// TestACopyChangedTheScalesOfAPassThatReadTheMapping: two parts of a quantised piece, one in the mapping and one
// in a copy, point to their own scales; before, a promotion moved those of a pass that was computing.
func TestACopyChangedTheScalesOfAPassThatReadTheMapping(t *testing.T) {
	codes := &loader.Tensor{Name: "w", DType: meta.Float8E4M3, Shape: []int{16, 32}, Size: 16 * 32}
	scales := &loader.Tensor{Name: "w_scale", DType: meta.Float32, Shape: []int{16, 1}, Size: 64}
	piece := New(loader.BoundTensor{Tensor: codes, Expert: -1, Quant: &meta.Quant{Format: meta.QuantFP8, Rows: 1, Columns: 32}, Scales: scales})
	mapped, copied := piece.NewPart(), piece.NewPart()
	mapping, slot := make([]byte, 64), make([]byte, 64)
	Set(&mapped, 1, mapping)
	Set(&copied, 1, slot)
	if &mapped.Quant.Scales.Data[0] != &mapping[0] || &copied.Quant.Scales.Data[0] != &slot[0] {
		t.Error("the scales of one part are where those of the other were set")
	}
	if piece.Part.Quant.Scales.Data != nil {
		t.Error("the piece itself was pointed to scales")
	}
}

// TestRowsOfConvertedMatrices: a band of a converted matrix is whole tiles with the bytes of their rows, and knows
// its height, by which kernels find the last tile's rows.
func TestRowsOfConvertedMatrices(t *testing.T) {
	const rows, row = 40, 96
	data := &loader.Tensor{Name: "w", DType: meta.Uint8, Shape: []int{rows * row}, Size: rows * row}
	q := &backend.Quant{Quant: &meta.Quant{Format: meta.QuantCoded, Rows: 1, Columns: 1}, Width: 64, Height: rows}
	whole := Piece{Ranges: []Range{{Tensor: data, Begin: 0, Size: rows * row}}, Size: rows * row,
		Part: backend.Part{Matrix: backend.Matrix{Tensor: View(meta.Uint8, []int{rows, 64}), Quant: q}, Into: meta.RowRange{Begin: 100, End: 140}}}
	band, ok := whole.Rows(16, 40)
	if want := []Range{{Tensor: data, Begin: 16 * row, Size: 24 * row}}; !ok || !slices.Equal(band.Ranges, want) || band.Size != 24*row {
		t.Errorf("rows 16 to 40: %v, %v, want %v", band.Ranges, ok, want)
	}
	if p := band.Part; p.Dims[0] != 24 || p.Quant.Height != 24 || p.Into != (meta.RowRange{Begin: 116, End: 140}) || q.Height != rows {
		t.Errorf("rows 16 to 40: %v of height %d into %v; the whole has height %d", p.Shape(), p.Quant.Height, p.Into, q.Height)
	}
	if _, ok := whole.Rows(8, 40); ok {
		t.Error("a band begins within a tile")
	}
}

// TestColumnsOfGPTQ: a band of outputs of a matrix with inputs first has a part of each line of codes, scales and
// zeros, and the whole index.
func TestColumnsOfGPTQ(t *testing.T) {
	const in, out, group = 256, 192, 64
	codes := &loader.Tensor{Name: "w.qweight", DType: meta.Int32, Shape: []int{in / 8, out}, Size: in / 8 * out * 4}
	scales := &loader.Tensor{Name: "w.scales", DType: meta.Float16, Shape: []int{in / group, out}, Size: in / group * out * 2}
	zeros := &loader.Tensor{Name: "w.qzeros", DType: meta.Int32, Shape: []int{in / group, out / 8}, Size: in / group * out / 8 * 4}
	index := &loader.Tensor{Name: "w.g_idx", DType: meta.Int32, Shape: []int{in}, Size: in * 4}
	whole := New(loader.BoundTensor{Tensor: codes, Expert: -1, Transposed: true, Quant: &meta.Quant{Format: meta.QuantGPTQ, Rows: group, Columns: 1}, Scales: scales, Zeros: zeros, Index: index})
	band, ok := whole.Columns(64, 192)
	want := []Range{
		{Tensor: codes, Begin: 64 * 4, Size: in / 8 * 128 * 4, Lines: in / 8, Pitch: out * 4},
		{Tensor: scales, Begin: 64 * 2, Size: in / group * 128 * 2, Lines: in / group, Pitch: out * 2},
		{Tensor: zeros, Begin: 8 * 4, Size: in / group * 16 * 4, Lines: in / group, Pitch: out / 8 * 4},
		{Tensor: index, Size: in * 4},
	}
	if !ok || !slices.Equal(band.Ranges, want) {
		t.Fatalf("outputs 64 to 192: %v, %v, want %v", band.Ranges, ok, want)
	}
	if p := band.Part; !slices.Equal(p.Shape(), []int{in, 128}) || p.Quant.Width != 128 || p.Into != (meta.RowRange{Begin: 64, End: 192}) || whole.Part.Quant.Width != out {
		t.Errorf("outputs 64 to 192: %v of width %d into %v; the whole has width %d", p.Shape(), p.Quant.Width, p.Into, whole.Part.Quant.Width)
	}
	part := band.NewPart()
	for i, r := range band.Ranges {
		Set(&part, i, make([]byte, r.Size))
	}
	if !part.Quant.Holds(part.Data, in) {
		t.Error("the band lacks some of its tensors")
	}
	if _, ok := whole.Columns(32, 192); ok {
		t.Error("a band begins within a unit of outputs")
	}
}
