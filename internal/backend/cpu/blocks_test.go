package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A blocksCase is one sequence with an indexer of blocks, in pages that do not lie in order.
type blocksCase struct {
	tokens                            int
	args                              backend.AttentionArgs
	blocks                            backend.BlockArgs
	q, keys, values, index, indexKeys []float32
}

func newBlocksCase(heads, size, count, local int) *blocksCase {
	random := rand.New(rand.NewPCG(5, 6))
	values := func(n int) []float32 { return normals(random, n) }
	c := &blocksCase{
		tokens: 230, args: backend.AttentionArgs{Heads: 6, KVHeads: 2, Dim: 24, ValueDim: 16, Scale: 0.2},
		blocks: backend.BlockArgs{Heads: heads, Dim: 8, Size: size, Count: count, Local: local},
	}
	c.q, c.keys, c.values = values(c.tokens*6*24), values(c.tokens*2*24), values(c.tokens*2*16)
	c.index, c.indexKeys = values(c.tokens*heads*8), values(c.tokens*8)
	return c
}

// newPages returns n pages of so many heads of dim channels.
func newPages(t *testing.T, b *Backend, d meta.DType, n, page, heads, dim int) tensor.Tensor {
	t.Helper()
	p, err := b.New(d, n, page, backend.KVRow(d, heads, dim))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run computes all rows in passes of chunk tokens.
func (c *blocksCase) run(t *testing.T, d meta.DType, threads, chunk int) []float32 {
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const page = 16
	n, a := (c.tokens+page-1)/page, c.args
	pages := func(heads, dim int) tensor.Tensor { return newPages(t, b, d, n, page, heads, dim) }
	kv := backend.KV{PageTokens: page, Heads: 2, K: pages(2, a.Dim), V: pages(2, a.ValueDim)}
	index := backend.KV{PageTokens: page, Heads: 1, K: pages(1, c.blocks.Dim)}
	index.V = index.K
	table := pagesInTurn(n)
	out := make([]float32, c.tokens*a.Heads*a.ValueDim)
	cut := func(v []float32, from, rows int) tensor.Tensor {
		width := len(v) / c.tokens
		return tensor.Floats(v[from*width:(from+rows)*width], rows, width)
	}
	for from := 0; from < c.tokens; from += chunk {
		rows := min(chunk, c.tokens-from)
		slots := slotsOf(table, page, from, rows)
		b.StoreKV(kv, cut(c.keys, from, rows), cut(c.values, from, rows), slots)
		b.StoreKV(index, cut(c.indexKeys, from, rows), tensor.Tensor{}, slots)
		spans := []backend.Span{{Rows: rows, Start: from, Pages: table}}
		chosen := tensor.Floats(make([]float32, rows*c.blocks.Heads*c.blocks.Count), rows, c.blocks.Heads*c.blocks.Count)
		b.ChooseBlocks(chosen, cut(c.index, from, rows), index, spans, c.blocks)
		b.AttentionBlocks(cut(out, from, rows), cut(c.q, from, rows), chosen, kv, spans, a, c.blocks)
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

func dot64(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// seen are the blocks that row r sees with head h, by the definition.
func (c *blocksCase) seen(r, h int) []int {
	x := c.blocks
	scores := make([]float32, r/x.Size+1)
	for block := range scores {
		best := math.Inf(-1)
		for j := block * x.Size; j <= min(r, block*x.Size+x.Size-1); j++ {
			best = max(best, dot64(c.index[(r*x.Heads+h)*x.Dim:][:x.Dim], c.indexKeys[j*x.Dim:][:x.Dim]))
		}
		if scores[block] = float32(best); block > r/x.Size-x.Local {
			scores[block] = float32(math.Inf(1))
		}
	}
	return chosenOf(scores, min(x.Count, len(scores)))
}

// want computes the definition in float64.
func (c *blocksCase) want() []float64 {
	a := c.args
	out := make([]float64, c.tokens*a.Heads*a.ValueDim)
	for r := range c.tokens {
		for h := range a.Heads {
			kv := h / (a.Heads / a.KVHeads)
			y, sum := out[(r*a.Heads+h)*a.ValueDim:][:a.ValueDim], 0.0
			for _, block := range c.seen(r, h/(a.Heads/c.blocks.Heads)) {
				for j := block * c.blocks.Size; j <= min(r, (block+1)*c.blocks.Size-1); j++ {
					weight := math.Exp(dot64(c.q[(r*a.Heads+h)*a.Dim:][:a.Dim], c.keys[(j*a.KVHeads+kv)*a.Dim:][:a.Dim]) * float64(a.Scale))
					sum += weight
					for i := range y {
						y[i] += weight * float64(c.values[(j*a.KVHeads+kv)*a.ValueDim+i])
					}
				}
			}
			for i := range y {
				y[i] /= sum
			}
		}
	}
	return out
}

func TestAttentionToBlocksIsItsDefinition(t *testing.T) {
	for _, c := range []*blocksCase{newBlocksCase(2, 7, 3, 1), newBlocksCase(2, 1, 20, 0), newBlocksCase(1, 70, 2, 1), newBlocksCase(6, 3, 4, 4), newBlocksCase(3, 64, 1, 0), newBlocksCase(2, 128, 2, 1)} {
		got := c.run(t, meta.Float32, 2, c.tokens)
		for i, want := range c.want() {
			if !(math.Abs(float64(got[i])-want) <= 1e-5) {
				t.Fatalf("%+v: element %d: got %v, want %v", c.blocks, i, got[i], want)
			}
		}
	}
}

func TestAttentionToBlocksHasTheSameBitsInAnyChunking(t *testing.T) {
	c := newBlocksCase(3, 7, 3, 1)
	for _, d := range []meta.DType{meta.Float32, meta.BFloat16, meta.Int8} {
		want := c.run(t, d, 1, c.tokens)
		for _, chunk := range []int{1, 3, 13, 64, 100} {
			for _, threads := range []int{1, 2, 5} {
				if !slices.Equal(c.run(t, d, threads, chunk), want) {
					t.Errorf("%v: chunks of %d tokens on %d threads have other bits", d, chunk, threads)
				}
			}
		}
	}
}
