package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkBatch is sequences that decode together, and short prompts, through layers which no cache
// holds, in operations, and as a share of the rate at which as many threads read such weights.
func BenchmarkBatch(b *testing.B) {
	for _, variant := range kernels.Names() {
		if variant != "amx" && variant != "avx512bf16" {
			continue
		}
		for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
			for _, tokens := range []int{1, 2, 4, 8, 16, 32, 64, 96, 128, 256, 512} {
				name := "decode"
				if role == backend.Prompt {
					name = "prompt"
				}
				b.Run(fmt.Sprintf("%s/%s/%d", variant, name, tokens), func(b *testing.B) {
					host := open(b, 2, variant)
					defer host.Close()
					var layers []*layer
					size, products := int64(0), 0.0
					for range 8 {
						l := newLayer(b, host, meta.BFloat16, tokens)
						l.rounded, l.role = true, role
						layers = append(layers, l)
						size += l.bytes
						products += l.multiplications * float64(tokens)
					}
					b.SetBytes(size)
					var took, read time.Duration
					for b.Loop() {
						start := time.Now()
						for _, l := range layers {
							l.run()
						}
						middle := time.Now()
						for _, l := range layers {
							l.read(2)
						}
						took, read = took+middle.Sub(start), read+time.Since(middle)
					}
					if err := host.Sync(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(2*products*float64(b.N)/float64(took.Nanoseconds()), "GFLOPS")
					b.ReportMetric(read.Seconds()/took.Seconds(), "share")
				})
			}
		}
	}
}

// BenchmarkPromptProducts is prompts through weights of 554 MB that no cache holds, on two threads: products alone, with packed
// tokens and stored results.
func BenchmarkPromptProducts(b *testing.B) {
	const rows, cols, count = 5632, 2048, 24
	for _, tokens := range []int{32, 64, 128, 256, 512} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			host := open(b, 2, "")
			defer host.Close()
			weights, err := host.New(meta.BFloat16, count, rows, cols)
			if err != nil {
				b.Fatal(err)
			}
			for i := range weights.Data {
				weights.Data[i] = []byte{byte(i * 7), 0x3c | byte(i>>3)<<7}[i%2]
			}
			x, y := zeros(tokens, cols), zeros(tokens, rows)
			for i := range x.F32() {
				x.F32()[i] = float32(i%97)*0.01 - 0.5 // zeros would take less power, and then cores are faster
			}
			for b.Loop() {
				for i := range count {
					host.LinearRounded(y, x, backend.Matrix{Tensor: weights.Index(i)}, tensor.Tensor{}, backend.Prompt)
				}
			}
			if err := host.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(2*rows*cols*count*float64(tokens*b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
		})
	}
}

// BenchmarkExperts measures the experts of a MoE layer with so many tokens each: weights that no cache
// holds, read once.
func BenchmarkExperts(b *testing.B) {
	const hidden, inner, experts = 1024, 2048, 16
	for _, tokens := range []int{8, 32, 48, 64, 96, 128, 256, 512} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			host := open(b, 2, "")
			defer host.Close()
			var up, down [experts]backend.Matrix
			for i := range up {
				for _, m := range []*backend.Matrix{&up[i], &down[i]} {
					rows, cols := 2*inner, hidden
					if m == &down[i] {
						rows, cols = hidden, inner
					}
					t, err := host.New(meta.BFloat16, rows, cols)
					if err != nil {
						b.Fatal(err)
					}
					for j := range t.Data {
						t.Data[j] = []byte{byte(j % 61), 0x3c}[j%2]
					}
					m.Tensor = t
				}
			}
			x, wide, y := zeros(tokens, hidden), zeros(tokens, 2*inner), zeros(tokens, hidden)
			for b.Loop() {
				for i := range up {
					host.LinearRounded(wide, x, up[i], tensor.Tensor{}, backend.Prompt)
					host.LinearRounded(y, wide.Columns(0, inner), down[i], tensor.Tensor{}, backend.Prompt)
				}
			}
			if err := host.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(2*3*hidden*inner*experts*float64(tokens*b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
		})
	}
}
