package cpu_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// benchWidth is the number of rows and columns of a weight.
const benchWidth = 4096

// benchFormats are the formats of weights with the bits of an element, rounded up.
var benchFormats = []struct {
	meta.Quant
	bits int
}{
	{meta.Quant{}, 16},
	{meta.Quant{Format: meta.QuantFP8, Rows: 128, Columns: 128}, 8},
	{meta.Quant{Format: meta.QuantMXFP4, Rows: 1, Columns: 32}, 4},
	{meta.Quant{Format: meta.QuantGPTQ, Rows: 128, Columns: 1}, 4},
	{meta.Quant{Format: meta.QuantAWQ, Rows: 128, Columns: 1}, 4},
	{meta.Quant{Format: meta.QuantQ8, Rows: 1, Columns: 32}, 9}, // 8.5
	{meta.Quant{Format: meta.QuantQ4, Rows: 1, Columns: 32}, 5}, // 4.5
	{meta.Quant{Format: meta.QuantInt4Packed, Rows: 1, Columns: 128}, 4},
	{meta.Quant{Format: meta.QuantInt8, Rows: 1, Columns: benchWidth}, 8},
	{meta.Quant{Format: meta.QuantBnbInt8, Rows: 1, Columns: benchWidth}, 8},
	{meta.Quant{Format: meta.QuantNVFP4, Rows: 1, Columns: 16}, 4},
	{meta.Quant{Format: meta.QuantNVFP4ModelOpt, Rows: 1, Columns: 16}, 4},
	{meta.Quant{Format: meta.QuantBnbNF4, Rows: 1, Columns: 64}, 4},
	{meta.Quant{Format: meta.QuantBnbFP4, Rows: 1, Columns: 64}, 4},
	{meta.Quant{Format: meta.QuantMXFP4Packed, Rows: 1, Columns: 32}, 4},
	{meta.Quant{Format: meta.QuantFP8Powers, Rows: 128, Columns: 128}, 8},
	{meta.Quant{Format: meta.QuantIQ1S, Rows: 1, Columns: 256}, 2},
	{meta.Quant{Format: meta.QuantIQ1M, Rows: 1, Columns: 256}, 2},
	{meta.Quant{Format: meta.QuantTQ10, Rows: 1, Columns: 256}, 2},
	{meta.Quant{Format: meta.QuantTQ20, Rows: 1, Columns: 256}, 3},
	{meta.Quant{Format: meta.QuantNVFP4Block, Rows: 1, Columns: 64}, 5}, // 4.5
	{meta.Quant{Format: meta.QuantQ10, Rows: 1, Columns: 128}, 2},       // 1.125
	{meta.Quant{Format: meta.QuantQ20, Rows: 1, Columns: 64}, 3},        // 2.25
	{meta.Quant{Format: meta.QuantInt8Packed, Rows: 1, Columns: benchWidth}, 8},
}

// BenchmarkQuantised is a generated token, eight of them, and prompts of 128 with exact inputs and of 16 and 512 with rounded ones,
// through a stack of weights of 4096 × 4096 in each format, on one thread. Bytes are those that are stored.
func BenchmarkQuantised(b *testing.B) {
	const n, layers = benchWidth, 8
	rounded := map[int]bool{16: true, 512: true} // tokens of prompts whose inputs may be rounded
	for _, f := range benchFormats {
		for _, tokens := range []int{1, 8, 16, 128, 512} {
			b.Run(fmt.Sprintf("%v/%d", f.Format, tokens), func(b *testing.B) {
				host := open(b, 1, os.Getenv("HEFT_CPU"))
				defer host.Close()
				stack, err := host.New(meta.Uint8, layers, n*n*f.bits/8)
				if err != nil {
					b.Fatal(err)
				}
				for i := range stack.Data {
					stack.Data[i] = byte(i * 7 % 113)
				}
				scales, offsets, global := zeros(n*n/16), zeros(n*n/32), zeros(1)
				global.F32()[0] = 1
				for i := range scales.Data {
					scales.Data[i] = 0x3c
				}
				x, y := zeros(tokens, n), zeros(tokens, n)
				b.SetBytes(stack.Bytes())
				for b.Loop() {
					for i := range layers {
						w := benchWeight(&f.Quant, stack.Index(i).Data, scales, offsets, global)
						if tokens < 16 {
							host.LinearRounded(y, x, w, tensor.Tensor{}, backend.Generated)
						} else if rounded[tokens] {
							host.LinearRounded(y, x, w, tensor.Tensor{}, backend.Prompt)
						} else {
							host.Linear(y, x, w, tensor.Tensor{})
						}
					}
				}
				if err := host.Sync(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(n*n*layers)*float64(tokens)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "Gmul/s")
			})
		}
	}
}

// benchWeight is a weight of codes, or of bfloat16 without a format.
func benchWeight(f *meta.Quant, codes []byte, scales, offsets, global tensor.Tensor) backend.Matrix {
	w := backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{benchWidth, benchWidth}, Data: codes}}
	if f.Format == meta.QuantNone {
		return w
	}
	w.Quant = &backend.Quant{Quant: f, Width: benchWidth, Scales: scales, Global: global}
	switch {
	case f.Format == meta.QuantQ8 || f.Format == meta.QuantQ4:
		w.Quant.Height = benchWidth // in bands
	case f.Format.Row().Codes.Flat:
		w.Quant.Global.Data = []byte(`{"blocksize": 64, "dtype": "bfloat16"}`)
	case f.Format.Row().Layout == meta.InputsFirst:
		w.Transposed, w.Quant.Zeros = true, offsets
	}
	return w
}
