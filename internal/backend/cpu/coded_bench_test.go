package cpu

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkCodedPrompts is prompts through coded weights, in turn with the same weights as stored. No
// cache holds them. It reports the speed relative to that of the weights as stored.
func BenchmarkCodedPrompts(b *testing.B) {
	const count = 16
	for _, shape := range [][2]int{{5632, 2048}, {2048, 5632}} {
		rows, cols := shape[0], shape[1]
		for _, tokens := range []int{16, 48, 64, 128, 256, 512} {
			b.Run(fmt.Sprintf("%dx%d/tokens=%d", rows, cols, tokens), func(b *testing.B) {
				host, err := New(Options{Threads: 2})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { host.Close() })
				before := fetch.Current()
				b.Cleanup(func() { fetch.Use(before) })
				fetch.Use(fetch.Default(tune.KeyOf("", 2).Vendor))
				rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
				stored, coded := codedWeights(b, host, rng, rows, cols, count)
				x, y := tensor.Floats(normals(rng, tokens*cols), tokens, cols), tensor.Floats(make([]float32, tokens*rows), tokens, rows)
				var took [2]time.Duration
				for b.Loop() {
					for kind, list := range [2][]backend.Matrix{stored, coded} {
						start := time.Now()
						for _, w := range list {
							host.LinearRounded(y, x, w, tensor.Tensor{}, backend.Prompt)
						}
						if err := host.Sync(); err != nil {
							b.Fatal(err)
						}
						took[kind] += time.Since(start)
					}
				}
				b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "of-stored")
				b.ReportMetric(2*float64(rows*cols*count*tokens*b.N)/float64(took[1].Nanoseconds()), "GFLOPS")
			})
		}
	}
}

// codedWeights returns count copies of a weight, as stored and coded.
func codedWeights(t testing.TB, b *Backend, rng *rand.Rand, rows, cols, count int) (stored, coded []backend.Matrix) {
	src := make([]byte, 2*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint16(src[2*i:], floats.ToBFloat16(float32(rng.NormFloat64()*0.05)))
	}
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}, Data: src}}}
	w, size, err := NewCoder(2).Converted(p)
	if err != nil {
		t.Fatal(err)
	}
	w.Data = make([]byte, size)
	if err := NewCoder(2).Convert(t.Context(), w.Data, src, &p); err != nil {
		t.Fatal(err)
	}
	copied := func(m backend.Matrix) backend.Matrix {
		memory, err := b.New(meta.BFloat16, (len(m.Data)+1)/2)
		if err != nil {
			t.Fatal(err)
		}
		m.Data = memory.Data[:copy(memory.Data, m.Data)]
		return m
	}
	for range count {
		stored, coded = append(stored, copied(p.Matrix)), append(coded, copied(w.Matrix))
	}
	return stored, coded
}

// codedCase is a product of few tokens and a coded weight of rows × cols.
func codedCase(t testing.TB, rows, cols, tokens int, rounded bool) (b *Backend, run func()) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	src := make([]byte, 2*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint16(src[2*i:], floats.ToBFloat16(float32(rng.NormFloat64()*0.05)))
	}
	coder := NewCoder(2)
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}}}}
	w, size, err := coder.Converted(p)
	if err != nil {
		t.Fatal(err)
	}
	w.Data = make([]byte, size)
	if err := coder.Convert(t.Context(), w.Data, src, &p); err != nil {
		t.Fatal(err)
	}
	x, y := tensor.Floats(normals(rng, tokens*cols), tokens, cols), tensor.Floats(make([]float32, tokens*rows), tokens, rows)
	return b, func() {
		b.single(backend.Product{Dst: y, X: x, W: w.Matrix, Rounded: rounded, Role: backend.Generated})
	}
}

// BenchmarkCoded is a product of a few tokens and a coded weight that caches hold in part.
func BenchmarkCoded(b *testing.B) {
	for _, shape := range [][2]int{{5632, 2048}, {2048, 5632}, {1024, 14336}} {
		for _, tokens := range []int{1, 2, 4, 8} {
			for _, rounded := range []bool{true, false} {
				b.Run(fmt.Sprintf("%dx%d/tokens=%d/rounded=%v", shape[0], shape[1], tokens, rounded), func(b *testing.B) {
					host, run := codedCase(b, shape[0], shape[1], tokens, rounded)
					for b.Loop() {
						run()
					}
					if err := host.Sync(); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}
