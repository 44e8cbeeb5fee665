package cpu_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkQuantised is a token, eight of them, and prompts of 128 and, with inputs rounded where that is
// faster, of 512, through a stack of weights of 4096 × 4096 in each format, on one thread. Bytes are those that are stored.
func BenchmarkQuantised(b *testing.B) {
	const n, layers = 4096, 8
	const rounded = 512 // tokens of a prompt whose inputs may be rounded
	for _, f := range []struct {
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
	} {
		for _, tokens := range []int{1, 8, 128, rounded} {
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
				scales, offsets := zeros(n*n/32), zeros(n*n/32)
				for i := range scales.Data {
					scales.Data[i] = 0x3c
				}
				x, y := zeros(tokens, n), zeros(tokens, n)
				b.SetBytes(stack.Bytes())
				for b.Loop() {
					for i := range layers {
						t := stack.Index(i)
						w := backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{n, n}, Data: t.Data}}
						if f.Format != meta.QuantNone {
							w.Quant = &backend.Quant{Quant: &f.Quant, Width: n, Scales: scales, Zeros: offsets}
							if f.Format == meta.QuantQ8 || f.Format == meta.QuantQ4 {
								w.Quant.Height = n // in bands
							}
							w.Transposed = f.Format == meta.QuantGPTQ || f.Format == meta.QuantAWQ
						}
						if tokens == rounded {
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
