package cpu_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// BenchmarkLongContexts is attention of one generated token over KV caches that no cache of the processor holds, with 1, 4 and 8
// queries for each of 4 heads of keys and values. It reports times and shares as BenchmarkPromptProducts does.
func BenchmarkLongContexts(b *testing.B) {
	memory := open(b, 1, "")
	defer memory.Close()
	data, err := memory.New(meta.BFloat16, 256<<20)
	if err != nil {
		b.Fatal(err)
	}
	for i := range data.Data {
		data.Data[i] = []byte{byte(i % 61), 0x3c}[i%2] // about a hundredth as a float
	}
	for _, dtype := range []meta.DType{meta.BFloat16, meta.Int8} {
		for _, queries := range []int{1, 4, 8} {
			for _, context := range []int{8 << 10, 16 << 10, 32 << 10} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%v/queries=%d/%d/%d", dtype, queries, context, threads), func(b *testing.B) {
						benchmarkLongContext(b, data.Data, dtype, queries, context, threads)
					})
				}
			}
		}
	}
}

func benchmarkLongContext(b *testing.B, memory []byte, dtype meta.DType, queries, context, threads int) {
	const heads, dim, pageTokens = 4, 128, 16
	host := open(b, threads, os.Getenv("HEFT_CPU"))
	defer host.Close()
	usualFetch(b, threads)
	row := backend.KVRow(dtype, heads, dim)
	shape := [tensor.MaxRank]int{context / pageTokens, pageTokens, row}
	size := int(dtype.Bytes(int64(context * row)))
	pages := make([]int32, context/pageTokens)
	for i := range pages {
		pages[i] = int32(i)
	}
	q, dst := zeros(1, queries*heads*dim), zeros(1, queries*heads*dim)
	spans := []backend.Span{{Rows: 1, Start: context - 1, Pages: pages}}
	a := backend.AttentionArgs{Heads: queries * heads, KVHeads: heads, Dim: dim, ValueDim: dim, Scale: 0.1}
	var times sampler
	for b.Loop() {
		for at := 0; at+2*size <= len(memory); at += 2 * size {
			kv := backend.KV{PageTokens: pageTokens, Heads: heads}
			kv.K = tensor.Tensor{DType: dtype, Rank: 3, Dims: shape, Data: memory[at:][:size]}
			kv.V = tensor.Tensor{DType: dtype, Rank: 3, Dims: shape, Data: memory[at+size:][:size]}
			times.take(func() { host.Attention(dst, q, kv, spans, a) })
			times.read(func() { readAll(threads, elsewhere(memory, at, 2*size)) })
		}
	}
	if err := host.Sync(); err != nil {
		b.Fatal(err)
	}
	times.report(b)
}
