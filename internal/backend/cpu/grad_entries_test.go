package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
)

// entriesReverse computes the gradients of sequences of compressed attention: of queries, of keys and entries, and of sinks.
type entriesReverse struct {
	lengths                  []int
	heads, dim, count        int
	window, rate             int
	q, dy, keys, values, row []float32
}

func newEntriesReverse(lengths []int, heads, dim, count, window, rate int) *entriesReverse {
	r := rand.New(rand.NewPCG(3, 4))
	c := &entriesReverse{lengths: lengths, heads: heads, dim: dim, count: count, window: window, rate: rate}
	n := c.tokens()
	c.q, c.dy, c.keys, c.values = normals(r, n*heads*dim), normals(r, n*heads*dim), normals(r, n*dim), normals(r, n*dim)
	for _, rows := range lengths { // any entries that are there, the later ones twice
		for i := range rows {
			for k := range count {
				c.row = append(c.row, math.Float32frombits(uint32((k+i)%max(1, (i+1)/rate))))
			}
		}
	}
	return c
}

func (c *entriesReverse) tokens() (n int) {
	for _, rows := range c.lengths {
		n += rows
	}
	return n
}

// open returns a function that adds the gradients to what result returns.
func (c *entriesReverse) open(t testing.TB, b *Backend) (reverse func(), result func() []float32) {
	t.Helper()
	const page = 16
	n, pages := c.tokens(), 0
	var spans []backend.Span
	var slots []int32
	for first, rows := 0, c.lengths; len(rows) > 0; first, rows = first+rows[0], rows[1:] {
		s := backend.Span{First: first, Rows: rows[0]}
		for i := range rows[0] {
			slots = append(slots, int32(pages*page+i))
		}
		for range ceil(rows[0], page) {
			s.Pages = append(s.Pages, int32(pages))
			pages++
		}
		spans = append(spans, s)
	}
	memory := func() (tensor.Tensor, []float32) {
		v := make([]float32, pages*page*c.dim)
		x := tensor.Floats(v, pages, page, c.dim)
		return x, v
	}
	kv, dkv := backend.KV{PageTokens: page, Heads: 1}, backend.KV{PageTokens: page, Heads: 1}
	kv.K, _ = memory()
	kv.V, _ = memory()
	var dk, dv []float32
	dkv.K, dk = memory()
	dkv.V, dv = memory()
	b.StoreKV(kv, tensor.Floats(c.keys, n, c.dim), tensor.Floats(c.values, n, c.dim), slots)
	dq, dsinks := make([]float32, n*c.heads*c.dim), make([]float32, c.heads)
	sinks := normals(rand.New(rand.NewPCG(7, 8)), c.heads)
	chosen := backend.ChosenBlocks{Entries: backend.EntryArgs{Rate: c.rate, First: c.dim}, Sinks: tensor.Floats(dsinks, c.heads)}
	if c.count > 0 {
		chosen.Chosen = tensor.Floats(c.row, n, c.count)
	}
	args := backend.AttentionArgs{Heads: c.heads, KVHeads: 1, Dim: c.dim, ValueDim: c.dim, Scale: 0.2, Window: c.window, Sinks: tensor.Floats(sinks, c.heads)}
	of := func(v []float32) tensor.Tensor { return tensor.Floats(v, n, c.heads*c.dim) }
	return func() {
		t.Helper()
		b.AttentionBlocksGrad(of(dq), dkv, of(c.dy), of(c.q), kv, spans, args, chosen)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}, func() []float32 { return slices.Concat(dq, dk, dv, dsinks) }
}

// TestGradientsOfEntriesHaveTheSameBitsOnAnyThreads: threads share the rows and the columns of a sequence, which was one unit.
func TestGradientsOfEntriesHaveTheSameBitsOnAnyThreads(t *testing.T) {
	for _, variant := range kernels.Names() {
		for _, c := range []*entriesReverse{newEntriesReverse([]int{70}, 5, 136, 7, 9, 3), newEntriesReverse([]int{3, 41, 1, 20}, 3, 72, 0, 6, 4)} {
			var want []float32
			for _, threads := range []int{1, 2, 5} {
				b, err := New(Options{Threads: threads, Variant: variant})
				if err != nil {
					t.Fatal(err)
				}
				reverse, result := c.open(t, b)
				reverse()
				got := result()
				b.Close()
				if want == nil {
					want = got
				}
				for i, v := range got {
					if math.Float32bits(v) != math.Float32bits(want[i]) || v != v {
						t.Fatalf("%s, lengths %v, %d threads: gradient %d is %v, with one thread %v", variant, c.lengths, threads, i, v, want[i])
					}
				}
			}
		}
	}
}

// BenchmarkEntriesGrad reverses attention of the shape of DeepSeek-V4 Flash: 64 heads of 512, a window of 128 and 512 entries.
func BenchmarkEntriesGrad(b *testing.B) {
	for _, lengths := range [][]int{{128}, {64, 64}} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("sequences=%d/threads=%d", len(lengths), threads), func(b *testing.B) {
				c := newEntriesReverse(lengths, 64, 512, 0, 128, 4)
				x, err := New(Options{Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				defer x.Close()
				reverse, _ := c.open(b, x)
				for b.Loop() {
					reverse()
				}
			})
		}
	}
}
