package quant

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestReadState(t *testing.T) {
	const good = `{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [6, 50], "nested_blocksize": 256, "nested_offset": -2.5e-1}`
	s, err := ReadState([]byte(good))
	if want := (State{Elements: 64, DType: mat.BFloat16, Offset: -0.25}); err != nil || s != want {
		t.Errorf("got %+v, error %v, want %+v", s, err, want)
	}
	for change, want := range map[[2]string]string{
		{`"blocksize": 64`, `"blocksize": 0`}:                   "blocksize",
		{`"blocksize": 64, `, ``}:                               "blocksize",
		{`bfloat16`, `float8`}:                                  "dtype",
		{`"nested_blocksize": 256`, `"nested_blocksize": 1024`}: "nested_blocksize",
		{`-2.5e-1`, `NaN`}:                                      "nested_offset",
		{`-2.5e-1`, `1e99`}:                                     "nested_offset",
		{`"blocksize": 64, "dtype`, `"blocksize`}:               "blocksize",
	} {
		if _, err := ReadState([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q for %q: error %v, want one of %s", change[1], change[0], err, want)
		}
	}
	for n := range len(good) {
		_, _ = ReadState([]byte(good[:n]))
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = ReadState([]byte(good)) }); n > 1 { // the copy of the text
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkUnpackApart widens formats whose scales are tensors of their own; MB are those of float32 values.
func BenchmarkUnpackApart(b *testing.B) {
	const rows, cols = 64, 4096
	random := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(rand.IntN(64))
		}
		return out
	}
	set := For(isa.Portable()) // these have no assembly
	dst := mat.Floats{V: make([]float32, rows*cols), Stride: cols}
	for _, p := range []Packed{
		{Packing: NF4, Columns: 64, Rows: 1, Zeros: random(4 * rows * cols), Index: random(4 * 256), Round: mat.BFloat16},
		{Packing: FP4, Columns: 64, Rows: 1, Round: mat.Float32},
		{Packing: Int4Packed, Columns: 128, Rows: 1},
		{Packing: Int8, Columns: cols, Rows: 1},
		{Packing: NVFP4, Columns: 16, Rows: 1, Global: 1},
	} {
		p.Width, p.Codes, p.Scales, p.ScaleFormat = cols, random(rows*cols), random(4*rows*cols), mat.Float32
		b.Run(p.Packing.String(), func(b *testing.B) {
			b.SetBytes(4 * rows * cols)
			scratch := make([]float32, UnpackScratch)
			for b.Loop() {
				set.Unpack(dst, View{Packed: &p, Rows: rows, Cols: cols}, scratch)
			}
		})
	}
}
