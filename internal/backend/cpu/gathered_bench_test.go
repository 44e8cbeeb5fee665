package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// gatheredCase is attention of one generated token behind so many others, in pages of bfloat16 that do not lie in order.
type gatheredCase struct {
	b              *Backend
	kv             backend.KV
	spans          []backend.Span
	q, dst, chosen tensor.Tensor
}

func newGatheredCase(t testing.TB, tokens, heads, dim, width, count int) *gatheredCase {
	const page = 64
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &gatheredCase{b: b, kv: backend.KV{PageTokens: page, Heads: 1}}
	if c.kv.K, err = b.New(meta.BFloat16, tokens/page, page, backend.KVRow(meta.BFloat16, 1, dim)); err != nil {
		t.Fatal(err)
	}
	if c.kv.V, err = b.New(meta.BFloat16, tokens/page, page, backend.KVRow(meta.BFloat16, 1, width)); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(4, 2))
	floats := func(rows, cols int) tensor.Tensor { return tensor.Floats(normals(rng, rows*cols), rows, cols) }
	table, slots := make([]int32, tokens/page), make([]int32, tokens)
	for i, p := range rng.Perm(len(table)) {
		table[i] = int32(p)
	}
	for i := range slots {
		slots[i] = table[i/page]*page + int32(i%page)
	}
	b.StoreKV(c.kv, floats(tokens, dim), floats(tokens, width), slots)
	c.q, c.dst = floats(1, heads*dim), tensor.Floats(make([]float32, heads*min(dim, width)), 1, heads*min(dim, width))
	chosen := make([]float32, count)
	for i := range chosen {
		chosen[i] = math.Float32frombits(uint32(i * 3))
	}
	c.chosen, c.spans = tensor.Floats(chosen, 1, count), []backend.Span{{Rows: 1, Start: tokens - 1, Pages: table}}
	return c
}

// BenchmarkGathered is attention of one token to 2048 chosen positions as DeepSeek-V3.2 has it, and to a window and chosen
// entries as DeepSeek-V4 has it, with 16 of their heads.
func BenchmarkGathered(b *testing.B) {
	run := func(b *testing.B, c *gatheredCase, f func()) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
		if err := c.b.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	for _, tokens := range []int{8192, 65536} {
		b.Run(fmt.Sprintf("positions/%d", tokens), func(b *testing.B) {
			c := newGatheredCase(b, tokens, 16, 576, 512, 2048)
			run(b, c, func() {
				c.b.AttentionChosen(c.dst, c.q, c.chosen, c.kv, c.spans, backend.AttentionArgs{Heads: 16, KVHeads: 1, Dim: 576, ValueDim: 512, Scale: 0.05})
			})
		})
		b.Run(fmt.Sprintf("entries/%d", tokens), func(b *testing.B) {
			c := newGatheredCase(b, tokens, 16, 512, 512+128, 512)
			run(b, c, func() {
				c.b.AttentionEntries(c.dst, c.q, c.chosen, c.kv, c.spans, backend.AttentionArgs{Heads: 16, KVHeads: 1, Dim: 512, ValueDim: 512, Window: 128, Scale: 0.05},
					backend.EntryArgs{Rate: 4, First: 512, Extra: 128})
			})
		})
	}
}
