package cpu_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/roof"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// layer are the weights of one decoder layer of a llama of 1.1 billion parameters
// (TinyLlama's shape), and its activations.
type layer struct {
	b                *cpu.Backend
	q, k, v, o       backend.Matrix
	inner, up, down  backend.Matrix
	x, h, wide, gate tensor.Tensor
	narrow, narrow2  tensor.Tensor
	products         [3]backend.Product
	role             backend.Role
	rounded          bool
	bytes            int64
	multiplications  float64
}

func newLayer(t testing.TB, b *cpu.Backend, dtype meta.DType, tokens int) *layer {
	t.Helper()
	l := &layer{b: b}
	matrix := func(rows, cols int) backend.Matrix {
		w, err := b.New(dtype, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		size := int(dtype.Bytes(1))
		for i := range w.Data[:61*size] {
			w.Data[i] = byte(i % 61)
			if i%size == size-1 {
				w.Data[i] |= 0x30 // no number is so small that it costs more than others
			}
		}
		for n := 61 * size; n < len(w.Data); n *= 2 {
			copy(w.Data[n:], w.Data[:n])
		}
		l.bytes += w.Bytes()
		l.multiplications += float64(rows * cols)
		return backend.Matrix{Tensor: w}
	}
	const hidden, inner, kv = 2048, 5632, 512
	l.q, l.k, l.v, l.o = matrix(hidden, hidden), matrix(kv, hidden), matrix(kv, hidden), matrix(hidden, hidden)
	l.inner, l.up, l.down = matrix(inner, hidden), matrix(inner, hidden), matrix(hidden, inner)
	l.x, l.h, l.narrow, l.narrow2 = zeros(tokens, hidden), zeros(tokens, hidden), zeros(tokens, kv), zeros(tokens, kv)
	l.wide, l.gate = zeros(tokens, inner), zeros(tokens, inner)
	return l
}

// run is a layer without attention.
func (l *layer) run() {
	none := tensor.Tensor{}
	product := func(dst, x tensor.Tensor, w backend.Matrix) backend.Product {
		return backend.Product{Dst: dst, X: x, W: w, Rounded: l.rounded, Role: l.role}
	}
	spec := meta.NormSpec{Dim: 2048, Eps: 1e-5}
	l.b.Norm(l.h, l.x, none, none, spec)
	l.b.Products(append(l.products[:0], product(l.x, l.h, l.q), product(l.narrow, l.h, l.k), product(l.narrow2, l.h, l.v)))
	l.b.Products(append(l.products[:0], product(l.x, l.h, l.o)))
	l.b.Norm(l.h, l.x, none, none, spec)
	l.b.Products(append(l.products[:0], product(l.gate, l.h, l.inner), product(l.wide, l.h, l.up)))
	l.b.Gate(l.gate, l.gate, l.wide, meta.ActSiLU, 0)
	l.b.Products(append(l.products[:0], product(l.x, l.gate, l.down)))
}

// BenchmarkDecode is one token through layers which no cache holds, in bytes of weights, and as a
// share of the rate at which as many threads read such weights and do nothing else.
func BenchmarkDecode(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, dtype := range []meta.DType{meta.BFloat16, meta.Float16, meta.Float32} {
			for _, rounded := range []bool{true, false} {
				if rounded && dtype != meta.BFloat16 {
					continue
				}
				b.Run(fmt.Sprintf("%v/rounded=%v/%d", dtype, rounded, threads), func(b *testing.B) {
					benchmarkDecode(b, threads, dtype, rounded)
				})
			}
		}
	}
}

func benchmarkDecode(b *testing.B, threads int, dtype meta.DType, rounded bool) {
	host := open(b, threads, os.Getenv("HEFT_CPU"))
	defer host.Close()
	var layers []*layer
	size := int64(0)
	for range 5 {
		l := newLayer(b, host, dtype, 1)
		l.rounded, l.role = rounded, backend.Generated
		layers = append(layers, l)
		size += l.bytes
	}
	b.SetBytes(size)
	var decode, read time.Duration
	for b.Loop() {
		start := time.Now()
		for _, l := range layers {
			l.run()
		}
		middle := time.Now()
		for _, l := range layers {
			l.read(threads)
		}
		decode, read = decode+middle.Sub(start), read+time.Since(middle)
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size)*float64(b.N)/decode.Seconds()/1e9, "decoded-GB/s")
	b.ReportMetric(float64(size)*float64(b.N)/read.Seconds()/1e9, "read-GB/s")
	b.ReportMetric(read.Seconds()/decode.Seconds(), "share")
}

// read reads what run reads, each thread a part of each weight.
func (l *layer) read(threads int) {
	readAll(threads, l.q.Data, l.k.Data, l.v.Data, l.o.Data, l.inner.Data, l.up.Data, l.down.Data)
}

// readAll reads weights, each thread a part of each.
func readAll(threads int, weights ...[]byte) {
	const piece = 1 << 20
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			for _, w := range weights {
				n := len(w)
				for own := w[n*i/threads : n*(i+1)/threads]; len(own) > 0; {
					some := own[:min(piece, len(own))]
					roof.ReadMemory(some)
					own = own[len(some):]
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkPrefill is a prompt through one layer, in operations on its weights.
func BenchmarkPrefill(b *testing.B) {
	for _, variant := range kernels.Names() {
		if variant == "go" {
			continue
		}
		for _, tokens := range []int{32, 128, 512} {
			for _, rounded := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%d/rounded=%v", variant, tokens, rounded), func(b *testing.B) {
					benchmarkLayer(b, variant, tokens, rounded, backend.Prompt)
				})
			}
		}
	}
}

// BenchmarkSmallBatch is a layer's work for sequences that decode together.
func BenchmarkSmallBatch(b *testing.B) {
	for _, tokens := range []int{1, 2, 4, 8, 16} {
		for _, rounded := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/rounded=%v", tokens, rounded), func(b *testing.B) {
				benchmarkLayer(b, "", tokens, rounded, backend.Generated)
			})
		}
	}
}

func benchmarkLayer(b *testing.B, variant string, tokens int, rounded bool, role backend.Role) {
	host := open(b, 1, variant)
	defer host.Close()
	l := newLayer(b, host, meta.BFloat16, tokens)
	l.rounded, l.role = rounded, role
	b.SetBytes(l.bytes)
	for b.Loop() {
		l.run()
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(2*l.multiplications*float64(tokens)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
}

// BenchmarkAttention is the end of a prompt, and one token behind it, with TinyLlama's heads and
// with as many of keys as of queries, in the best variant and with AVX2.
func BenchmarkAttention(b *testing.B) {
	const context = 4096
	names := kernels.Names()
	for i, variant := range names {
		if i > 0 && variant != "avx2" {
			continue
		}
		for _, kvHeads := range []int{4, 32} {
			for _, dtype := range []meta.DType{meta.Int8, meta.BFloat16, meta.Float32} {
				for _, rows := range []int{1, 512} {
					for _, prompt := range []bool{false, true} {
						if prompt && (rows == 1 || dtype == meta.Float32) {
							continue
						}
						b.Run(fmt.Sprintf("%s/%v/heads=%d/rows=%d/prompt=%v", variant, dtype, kvHeads, rows, prompt), func(b *testing.B) {
							benchmarkAttention(b, variant, kvHeads, dtype, rows, context, prompt)
						})
					}
				}
			}
		}
	}
}

// benchmarkAttention goes through as many layers as no cache holds.
func benchmarkAttention(b *testing.B, variant string, kvHeads int, dtype meta.DType, rows, context int, prompt bool) {
	const layers, pageTokens = 8, 16
	host := open(b, 2, variant)
	defer host.Close()
	a := backend.AttentionArgs{Heads: 32, KVHeads: kvHeads, Dim: 64, ValueDim: 64, Scale: 0.125, Prompts: slices.Repeat([]bool{prompt}, rows)}
	var kv [layers]backend.KV
	var bytes int64
	for i := range kv {
		kv[i] = backend.KV{PageTokens: pageTokens, Heads: kvHeads}
		for _, t := range []*tensor.Tensor{&kv[i].K, &kv[i].V} {
			var err error
			if *t, err = host.New(dtype, context/pageTokens, pageTokens, backend.KVRow(dtype, kvHeads, 64)); err != nil {
				b.Fatal(err)
			}
			for j := range t.Data {
				t.Data[j] = []byte{byte(j % 61), 0x3c}[j%2] // about a hundredth as a float
			}
			bytes += t.Bytes()
		}
	}
	var pages []int32
	for i := range context / pageTokens {
		pages = append(pages, int32(i))
	}
	q, dst := zeros(rows, 2048), zeros(rows, 2048)
	spans := []backend.Span{{Rows: rows, Start: context - rows, Pages: pages}}
	b.SetBytes(bytes)
	for b.Loop() {
		for i := range kv {
			host.Attention(dst, q, kv[i], spans, a)
		}
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
	products := 4 * 64 * 32 * float64(rows*context-rows*rows/2) * layers
	b.ReportMetric(products*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
}

// BenchmarkSmall measures the cost of an operation without its arithmetic.
func BenchmarkSmall(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			host := open(b, threads, "")
			defer host.Close()
			x, w := zeros(1, 256), backend.Matrix{Tensor: zeros(256, 256)}
			for b.Loop() {
				host.Linear(x, x, w, tensor.Tensor{})
			}
		})
	}
}

// BenchmarkTransposedDecode is one token through weights that are stored transposed.
func BenchmarkTransposedDecode(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			host := open(b, threads, "")
			defer host.Close()
			const in, out, layers = 1600, 6400, 12 // GPT-2 XL's first projection
			stack, err := host.New(meta.BFloat16, layers, in, out)
			if err != nil {
				b.Fatal(err)
			}
			for i := range stack.Data {
				stack.Data[i] = byte(i % 61)
			}
			x, y := zeros(1, in), zeros(1, out)
			b.SetBytes(stack.Bytes())
			for b.Loop() {
				for i := range layers {
					host.Linear(y, x, backend.Matrix{Tensor: stack.Index(i), Transposed: true}, tensor.Tensor{})
				}
			}
			if err := host.Sync(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRoute chooses 8 of 128 experts for the rows of a prompt.
func BenchmarkRoute(b *testing.B) {
	const rows, experts, k = 512, 128, 8
	host := open(b, 1, "")
	defer host.Close()
	logits, chosen, weights := zeros(rows, experts), make([]int32, rows*k), make([]float32, rows*k)
	for i := range logits.F32() {
		logits.F32()[i] = float32(i*7919%1009) / 200
	}
	spec := &meta.MoESpec{Count: experts, TopK: k, Score: meta.ScoreSoftmax, Renormalise: true}
	for b.Loop() {
		host.Route(chosen, weights, logits, tensor.Tensor{}, spec)
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
}
