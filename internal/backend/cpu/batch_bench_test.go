package cpu_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/tune"
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
					usualFetch(b, 2)
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

// BenchmarkPromptProducts is prompts through weights of 554 MB that no cache holds: products alone, with packed tokens and stored
// results. It reports the median and the fastest eighth of the products, which other work on the machine does not interrupt, and
// the latter as a share of the rate at which as many threads read other weights meanwhile.
func BenchmarkPromptProducts(b *testing.B) {
	memory := open(b, 1, "")
	defer memory.Close()
	weights, err := memory.New(meta.BFloat16, 277<<20)
	if err != nil {
		b.Fatal(err)
	}
	for i := range weights.Data {
		weights.Data[i] = []byte{byte(i * 7), 0x3c | byte(i>>3)<<7}[i%2]
	}
	for _, shape := range [][2]int{{1408, 2048}, {512, 5632}, {704, 4096}} {
		for _, tokens := range []int{16, 32, 48, 64, 96, 128, 192, 256, 512} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%dx%d/%d/%d", shape[0], shape[1], tokens, threads), func(b *testing.B) {
					benchmarkPromptProducts(b, weights, shape[0], shape[1], tokens, threads)
				})
			}
		}
	}
}

func benchmarkPromptProducts(b *testing.B, weights tensor.Tensor, rows, cols, tokens, threads int) {
	host := open(b, threads, os.Getenv("HEFT_CPU"))
	defer host.Close()
	usualFetch(b, threads)
	each := 2 * rows * cols
	x, y := zeros(tokens, cols), zeros(tokens, rows)
	for i := range x.F32() {
		x.F32()[i] = float32(i%97)*0.01 - 0.5 // zeros would take less power, and then cores are faster
	}
	var times sampler
	for b.Loop() {
		for i := range len(weights.Data) / each {
			w := tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}, Data: weights.Data[i*each:][:each]}
			times.take(func() { host.LinearRounded(y, x, backend.Matrix{Tensor: w}, tensor.Tensor{}, backend.Prompt) })
			if i%2 == 0 {
				times.read(func() { readAll(threads, elsewhere(weights.Data, i*each, each)) })
			}
		}
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
	times.report(b)
	b.ReportMetric(2*float64(rows*cols*tokens)/float64(times.took[len(times.took)/8].Nanoseconds()), "GFLOPS")
}

// usualFetch makes kernels read weights in the usual patterns of this processor until the benchmark ends.
func usualFetch(b *testing.B, threads int) {
	before := fetch.Current()
	b.Cleanup(func() { fetch.Use(before) })
	fetch.Use(fetch.Default(tune.KeyOf(os.Getenv("HEFT_CPU"), threads).Vendor))
}

// elsewhere returns n bytes of memory half of it away from those at an offset, which the third-level cache may still hold.
func elsewhere(memory []byte, at, n int) []byte {
	at = (at + len(memory)/2) % len(memory)
	return memory[min(at, len(memory)-n):][:n]
}

// A sampler holds the times of equal operations and of reading what they read.
type sampler struct{ took, reads []time.Duration }

func timed(list *[]time.Duration, run func()) {
	start := time.Now()
	run()
	*list = append(*list, time.Since(start))
}

func (s *sampler) take(run func()) { timed(&s.took, run) }
func (s *sampler) read(run func()) { timed(&s.reads, run) }

// report reports the times of operations, in microseconds, and the share of the memory rate that they reach.
func (s *sampler) report(b *testing.B) {
	slices.Sort(s.took)
	slices.Sort(s.reads)
	fast := s.took[len(s.took)/8]
	b.ReportMetric(float64(s.took[len(s.took)/2].Nanoseconds())/1000, "median-us")
	b.ReportMetric(float64(fast.Nanoseconds())/1000, "fast-us")
	b.ReportMetric(s.reads[len(s.reads)/8].Seconds()/fast.Seconds(), "share")
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
