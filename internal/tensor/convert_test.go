package tensor

import (
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestOneReaderOfFloatsForAllDTypes: numbers that every dtype holds come back from each.
func TestOneReaderOfFloatsForAllDTypes(t *testing.T) {
	want := []float32{0, 1, -1.5, 0.25, -192}
	for _, d := range []meta.DType{meta.Float64, meta.Float32, meta.Float16, meta.BFloat16} {
		b := make([]byte, d.Bytes(int64(len(want))))
		if err := Narrow(b, want, d); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(want))
		if err := Widen(got, b, d); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v: %v, %v", d, got, err)
		}
		if err := Widen(got, b[1:], d); err == nil {
			t.Errorf("%v: too few bytes were read", d)
		}
		if err := Narrow(b[1:], want, d); err == nil {
			t.Errorf("%v: too few bytes were written", d)
		}
	}
	got := make([]float32, 2)
	for d, want := range map[meta.DType][]float32{meta.Float8E4M3: {1, -1.5}, meta.Float8E5M2: {0.5, -1}, meta.Float8E8M0: {0x1p-71, 0x1p61}} {
		if err := Widen(got, []byte{0x38, 0xbc}, d); err != nil {
			t.Error(err)
		} else if !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
	for _, d := range []meta.DType{meta.Int8, meta.Bool, meta.Int64, meta.Float4E2M1, meta.NoDType} {
		if err := Widen(got, make([]byte, d.Bytes(2)), d); err == nil {
			t.Errorf("%v was read", d)
		}
		if err := Narrow(make([]byte, d.Bytes(2)), got, d); err == nil {
			t.Errorf("%v was written", d)
		}
	}
}
