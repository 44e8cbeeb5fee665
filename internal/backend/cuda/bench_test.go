//go:build cuda

package cuda

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/backend/cuda/driver"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// benchOpen opens GPU 0.
func benchOpen(b *testing.B) *Backend {
	b.Helper()
	host, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = host.Close() })
	gpu, err := New(0, Options{Host: host, Lanes: 8, Fast: true})
	testenv.Need(b, "cuda", err == nil, fmt.Sprint(err))
	b.Cleanup(func() { _ = gpu.Close() })
	return gpu
}

func benchNew(b *testing.B, gpu *Backend, d meta.DType, dims ...int) tensor.Tensor {
	b.Helper()
	t, err := gpu.New(d, dims...)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// benchMade caches random numbers by dtype and size, because making them takes longer than the
// measurement.
var benchMade = map[[2]int][]byte{}

func benchNumbers(bytes, size int) []byte {
	made, ok := benchMade[[2]int{bytes, size}]
	if !ok {
		made = make([]byte, bytes)
		state := uint32(1)
		for i := size - 2; i < len(made); i += size {
			state = state*1664525 + 1013904223
			binary.LittleEndian.PutUint16(made[i:], 0x3f80|uint16(state>>16)&0x807f)
		}
		benchMade[[2]int{bytes, size}] = made
	}
	return made
}

// benchRandom returns GPU memory with numbers of magnitude 1 to 2 and either sign. Zeros might be
// faster.
func benchRandom(b *testing.B, gpu *Backend, d meta.DType, rows, cols int) tensor.Tensor {
	b.Helper()
	t := benchNew(b, gpu, d, rows, cols)
	host := t
	host.Address, host.Data = 0, benchNumbers(int(t.Bytes()), int(d.Bytes(1)))
	if err := gpu.Copy(t, host); err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkLink measures copies of host memory in bytes per second: through the pinned ring
// concurrently with operations (fill), and with a wait for each chunk (copy).
func BenchmarkLink(b *testing.B) {
	n := 256 << 20
	if testing.Short() {
		n = 4 << 20
	}
	host := tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: make([]byte, n)}
	host.Dims[0] = n
	for i := range host.Data {
		host.Data[i] = byte(i) // touch the pages, so that they are resident
	}
	for name, run := range map[string]func(gpu *Backend, t tensor.Tensor, pinned []byte) error{
		"fill":        func(gpu *Backend, t tensor.Tensor, _ []byte) error { return gpu.Fill(t, host.Data, gpu.Fence()) },
		"copy":        func(gpu *Backend, t tensor.Tensor, _ []byte) error { return gpu.Copy(t, host) },
		"copy-to-cpu": func(gpu *Backend, t tensor.Tensor, _ []byte) error { return gpu.Copy(host, t) },
		"pinned": func(gpu *Backend, t tensor.Tensor, pinned []byte) error {
			return gpu.queue.ToDevice(t.Address, pinned)
		},
	} {
		b.Run(name, func(b *testing.B) {
			gpu := benchOpen(b)
			t := benchNew(b, gpu, meta.Uint8, n)
			pinned, err := gpu.queue.Pinned(n)
			if err != nil {
				b.Fatal(err)
			}
			defer driver.FreePinned(pinned)
			if err := run(gpu, t, pinned); err != nil { // the first one allocates
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := run(gpu, t, pinned); err != nil {
					b.Fatal(err)
				}
				if err := gpu.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLinear measures products with the bfloat16 matrices of models with 1, 8 and 70 billion
// weights, in bytes of the matrix per second and in operations per second. Up to 64 rows are
// generated tokens, more are prompt tokens. The matrices of a round exceed the GPU's caches.
func BenchmarkLinear(b *testing.B) {
	shapes, tokens, round := [][2]int{{2048, 8192}, {4096, 4096}, {4096, 14336}, {14336, 4096}, {8192, 28672}}, []int{1, 8, 64, 128, 512, 2048}, 256<<20
	if testing.Short() {
		shapes, tokens, round = [][2]int{{64, 256}}, []int{1, 8}, 1
	}
	for _, s := range shapes {
		for _, n := range tokens {
			b.Run(fmt.Sprintf("%dx%d/rows-%d", s[1], s[0], n), func(b *testing.B) {
				benchLinear(b, s[1], s[0], n, ceil(round, 2*s[0]*s[1]))
			})
		}
	}
}

func benchLinear(b *testing.B, rows, cols, tokens, matrices int) {
	gpu := benchOpen(b)
	var ws []backend.Matrix
	for range matrices {
		ws = append(ws, backend.Matrix{Tensor: benchRandom(b, gpu, meta.BFloat16, rows, cols)})
	}
	x, y := benchRandom(b, gpu, meta.Float32, tokens, cols), benchNew(b, gpu, meta.Float32, tokens, rows)
	role := backend.Generated
	if tokens > fewTokens {
		role = backend.Prompt
	}
	b.SetBytes(ws[0].Bytes() * int64(matrices))
	for b.Loop() {
		for _, w := range ws {
			gpu.LinearRounded(y, x, w, tensor.Tensor{}, role)
		}
		if err := gpu.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	operations := 2 * float64(rows) * float64(cols) * float64(tokens) * float64(b.N*matrices)
	b.ReportMetric(operations/b.Elapsed().Seconds()/1e9, "Gop/s")
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*matrices), "us/op")
}

// BenchmarkAttention measures one layer of a model with 8 billion weights, in bytes of the KV cache
// per second: one generated token, 16 of them, and a prompt of 512 tokens, after the given number
// of positions.
func BenchmarkAttention(b *testing.B) {
	contexts, layers := []int{512, 8192}, 16
	if testing.Short() {
		contexts, layers = []int{16}, 1
	}
	for _, context := range contexts {
		for name, c := range map[string][2]int{"1": {1, 1}, "16": {16, 1}, "prompt": {1, min(context, 512)}} {
			b.Run(fmt.Sprintf("%s/context-%d", name, context), func(b *testing.B) { benchAttention(b, c[0], c[1], context, layers) })
		}
	}
}

func benchAttention(b *testing.B, sequences, rows, context, layers int) {
	const heads, kvHeads, dim, page = 32, 8, 128, 16
	gpu := benchOpen(b)
	pages := context / page
	kv := backend.KV{PageTokens: page, Heads: kvHeads}
	kv.K, kv.V = benchNew(b, gpu, meta.BFloat16, pages*sequences, page, kvHeads*dim), benchNew(b, gpu, meta.BFloat16, pages*sequences, page, kvHeads*dim)
	var spans []backend.Span
	for s := range sequences {
		span := backend.Span{First: s * rows, Rows: rows, Start: context - rows}
		for p := range pages {
			span.Pages = append(span.Pages, int32(s*pages+p))
		}
		spans = append(spans, span)
	}
	n := sequences * rows
	q, y := benchNew(b, gpu, meta.Float32, n, heads*dim), benchNew(b, gpu, meta.Float32, n, heads*dim)
	a := backend.AttentionArgs{Heads: heads, KVHeads: kvHeads, Dim: dim, ValueDim: dim, Scale: 0.1, Prompts: make([]bool, n)}
	b.SetBytes(int64(layers) * (kv.K.Bytes() + kv.V.Bytes()))
	for b.Loop() {
		for range layers {
			gpu.Attention(y, q, kv, spans, a)
		}
		if err := gpu.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*layers), "us/op")
}

// BenchmarkNorm measures the minimum cost of a launch.
func BenchmarkNorm(b *testing.B) {
	gpu := benchOpen(b)
	x := benchNew(b, gpu, meta.Float32, 1, 4096)
	for b.Loop() {
		for range 64 {
			gpu.Norm(x, x, tensor.Tensor{}, tensor.Tensor{}, meta.NormSpec{Dim: 4096, Eps: 1e-5})
		}
		if err := gpu.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*64), "us/op")
}

// BenchmarkBlock measures the pass of a generated token through blocks of a model with 8 billion
// weights, in bytes of weights per second.
func BenchmarkBlock(b *testing.B) {
	if testing.Short() {
		benchBlocks(b, blockShape{layers: 1, hidden: 64, inner: 128, heads: 4, kvHeads: 2, dim: 16, context: 32})
		return
	}
	benchBlocks(b, blockShape{layers: 6, hidden: 4096, inner: 14336, heads: 32, kvHeads: 8, dim: 128, context: 576})
}

type blockShape struct{ layers, hidden, inner, heads, kvHeads, dim, context int }

type benchBlock struct {
	q, k, v, o, gate, up, down backend.Matrix
	norm                       tensor.Tensor
	kv                         backend.KV
}

func benchBlocks(b *testing.B, s blockShape) {
	const page = 16
	gpu := benchOpen(b)
	matrix := func(rows, cols int) backend.Matrix {
		return backend.Matrix{Tensor: benchRandom(b, gpu, meta.BFloat16, rows, cols)}
	}
	row := func(n int) tensor.Tensor { return benchNew(b, gpu, meta.Float32, 1, n) }
	width, kvWidth, pages := s.heads*s.dim, s.kvHeads*s.dim, s.context/page
	var blocks []benchBlock
	for range s.layers {
		blocks = append(blocks, benchBlock{matrix(width, s.hidden), matrix(kvWidth, s.hidden), matrix(kvWidth, s.hidden), matrix(s.hidden, width),
			matrix(s.inner, s.hidden), matrix(s.inner, s.hidden), matrix(s.hidden, s.inner), benchNew(b, gpu, meta.BFloat16, s.hidden),
			backend.KV{PageTokens: page, Heads: s.kvHeads, K: benchNew(b, gpu, meta.BFloat16, pages, page, kvWidth), V: benchNew(b, gpu, meta.BFloat16, pages, page, kvWidth)}})
	}
	span := backend.Span{Rows: 1, Start: s.context - 1}
	for p := range pages {
		span.Pages = append(span.Pages, int32(p))
	}
	x, n, more, q, k, v := row(s.hidden), row(s.hidden), row(s.hidden), row(width), row(kvWidth), row(kvWidth)
	y, gate, up, c, sine := row(width), row(s.inner), row(s.inner), row(s.dim/2), row(s.dim/2)
	attention := backend.AttentionArgs{Heads: s.heads, KVHeads: s.kvHeads, Dim: s.dim, ValueDim: s.dim, Scale: 0.1, Prompts: make([]bool, 1)}
	norm := meta.NormSpec{Dim: s.hidden, Eps: 1e-5}
	rounded := func(dst, x tensor.Tensor, w backend.Matrix) backend.Product {
		return backend.Product{Dst: dst, X: x, W: w, Rounded: true}
	}
	b.SetBytes(int64(s.layers) * int64(2*s.hidden) * int64(2*width+2*kvWidth+3*s.inner))
	for b.Loop() {
		for i := range blocks {
			l := &blocks[i]
			gpu.Norm(n, x, l.norm, tensor.Tensor{}, norm)
			gpu.Products([]backend.Product{rounded(q, n, l.q), rounded(k, n, l.k), rounded(v, n, l.v)})
			gpu.Rope(q, s.dim, c, sine, false)
			gpu.Rope(k, s.dim, c, sine, false)
			gpu.StoreKV(l.kv, k, v, []int32{int32(s.context - 1)})
			gpu.Attention(y, q, l.kv, []backend.Span{span}, attention)
			gpu.Products([]backend.Product{rounded(more, y, l.o)})
			gpu.Add(x, more, 1)
			gpu.Norm(n, x, l.norm, tensor.Tensor{}, norm)
			gpu.Products([]backend.Product{rounded(gate, n, l.gate), rounded(up, n, l.up)})
			gpu.Gate(gate, gate, up, meta.ActSiLU, 0)
			gpu.Products([]backend.Product{rounded(more, gate, l.down)})
			gpu.Add(x, more, 1)
		}
		if err := gpu.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*s.layers), "us/op")
}
