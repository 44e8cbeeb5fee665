package lora

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestTiledHeads: rows of B and columns of A of tiled value heads are where the checkpoint has them, and come back.
func TestTiledHeads(t *testing.T) {
	tiling := &meta.Tiling{From: 1, Keys: 2, Per: 3, Dim: 2} // heads a0 a1 a2 b0 b1 b2 of two rows each, behind one row
	target := Target{spec: &meta.LinearSpec{RowTiling: tiling, ColumnTiling: tiling}}
	theirs := []float32{0, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25}
	file := []float32{0, 10, 11, 20, 21, 12, 13, 22, 23, 14, 15, 24, 25}
	for _, c := range []struct {
		name   string
		turn   func(m tensor.Tensor, into bool) tensor.Tensor
		matrix tensor.Tensor
	}{{"rows", target.rows, tensor.Floats(slices.Clone(theirs), 13, 1)}, {"columns", target.columns, tensor.Floats(slices.Clone(theirs), 1, 13)}} {
		into := c.turn(c.matrix, true)
		if got := into.F32(); !slices.Equal(got, file) {
			t.Errorf("%s: got %v, want %v", c.name, got, file)
		}
		if got := c.turn(into, false).F32(); !slices.Equal(got, theirs) {
			t.Errorf("%s: came back as %v", c.name, got)
		}
	}
}
