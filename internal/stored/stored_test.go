package stored

import (
	"slices"
	"testing"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestSlabTakesItsScalesAlong: an expert of a quantised stack has its own codes and its own
// scales, of its own number.
func TestSlabTakesItsScalesAlong(t *testing.T) {
	codes := &loader.Tensor{Name: "blocks", DType: meta.Uint8, Shape: []int{3, 4, 2, 16}, Size: 3 * 4 * 2 * 16}
	scales := &loader.Tensor{Name: "scales", DType: meta.Uint8, Shape: []int{3, 4, 2}, Size: 3 * 4 * 2}
	whole := New(loader.BoundTensor{Tensor: codes, Expert: -1, Quant: &meta.Quant{Format: meta.QuantMXFP4, Rows: 1, Columns: 32}, Scales: scales})
	if got := whole.Part.Shape(); !slices.Equal(got, []int{3, 4, 64}) || whole.Size != codes.Size+scales.Size {
		t.Fatalf("a stack of %v in %d bytes", got, whole.Size)
	}
	one := whole.Slab(2)
	if got := one.Part.Shape(); !slices.Equal(got, []int{4, 64}) || one.Part.Quant.Scales.Dims[0] != 8 {
		t.Errorf("a slab of %v with %d scales", got, one.Part.Quant.Scales.Dims[0])
	}
	if want := []Range{{codes, 256, 128}, {scales, 16, 8}}; !slices.Equal(one.Ranges, want) || one.Size != 136 {
		t.Errorf("ranges %v of %d bytes, want %v", one.Ranges, one.Size, want)
	}
	part := one.Part
	for i, r := range one.Ranges {
		Set(&part, i, make([]byte, r.Size))
	}
	if len(part.Data) != 128 || len(part.Quant.Scales.Data) != 8 || len(whole.Part.Quant.Scales.Data) != 0 {
		t.Errorf("%d bytes of codes and %d of scales; the stack's are %d", len(part.Data), len(part.Quant.Scales.Data), len(whole.Part.Quant.Scales.Data))
	}
}
