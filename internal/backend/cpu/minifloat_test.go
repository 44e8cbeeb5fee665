package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestScalesThatArePowersMissedTheKernelsOfCodes: generated tokens get the bits of MXFP4 from MXFP4 packed, and those of FP8 from
// FP8 whose scales are powers of two: their weights were unpacked for each token.
func TestScalesThatArePowersMissedTheKernelsOfCodes(t *testing.T) {
	const in, out, block = 256, 70, 32
	r := rand.New(rand.NewPCG(30, 11))
	packed := rowsOfCodes(t, r, meta.QuantMXFP4Packed, in, out, 32, false)
	mxfp4 := withFormat(packed, meta.QuantMXFP4, 1, 32)
	powers := withFormat(packed, meta.QuantFP8Powers, block, 64)
	powers.Data, powers.Quant.Scales = make([]byte, in*out), packed.Quant.Scales
	for i := range powers.Data {
		powers.Data[i] = byte(r.IntN(127)) | byte(r.IntN(2))<<7
	}
	fp8 := withFormat(powers, meta.QuantFP8, block, 64)
	fp8.Quant.Scales = floatScales(t, powers.Quant.Scales.Data)
	for _, variant := range kernels.Names() {
		b := open(t, 2, variant)
		for _, pair := range [][2]backend.Matrix{{packed, mxfp4}, {powers, fp8}} {
			for _, tokens := range []int{1, 3, 8, 40} {
				x := random(t, r, tokens, in)
				var got [2][]float32
				for i, w := range pair {
					y, err := b.New(meta.Float32, tokens, out)
					if err != nil {
						t.Fatal(err)
					}
					b.LinearRounded(y, x, w, tensor.Tensor{}, backend.Generated)
					if err := b.Sync(); err != nil {
						t.Fatal(err)
					}
					got[i] = y.F32()
				}
				for i, v := range got[0] {
					if math.Float32bits(v) != math.Float32bits(got[1][i]) {
						t.Fatalf("%s, %d tokens: result %d of %v is %v, of %v %v", variant, tokens, i, pair[0].Quant.Format, v, pair[1].Quant.Format, got[1][i])
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// withFormat is w whose bytes are read as another format; its Quant is a copy.
func withFormat(w backend.Matrix, f meta.QuantFormat, rows, columns int) backend.Matrix {
	q := *w.Quant
	q.Quant = &meta.Quant{Format: f, Rows: rows, Columns: columns}
	w.Quant = &q
	return w
}

// floatScales are powers of two as float32.
func floatScales(t *testing.T, powers []byte) tensor.Tensor {
	t.Helper()
	data := make([]byte, 4*len(powers))
	for i, p := range powers {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(floats.FromE8M0(p)))
	}
	out, err := tensor.Of(data, meta.Float32, len(powers))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
