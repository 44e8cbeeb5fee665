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

// dilated convolves x, [rows, channels], in passes of chunk tokens, and returns the result and the last state.
func dilated(t *testing.T, x, weight []float32, channels, step, chunk int) (out, state []float32) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	rows, kernel := len(x)/channels, len(weight)/channels
	kept := (kernel - 1) * step * channels
	memory := make([]float32, 2*kept)
	out = make([]float32, len(x))
	from := int32(-1)
	for begin := 0; begin < rows; begin += chunk {
		n := min(chunk, rows-begin)
		to := 1 - max(from, 0)
		s := backend.States{Memory: tensor.Floats(memory, 2, kept), Spans: []backend.StateSpan{{Rows: n, From: from, To: to}}}
		view := func(v []float32) tensor.Tensor {
			return tensor.Floats(v[begin*channels:(begin+n)*channels], n, channels)
		}
		b.DilatedConv(view(out), view(x), tensor.Floats(weight, len(weight)), s, step, meta.ActNone)
		from = to
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out, memory[int(from)*kept:][:kept]
}

func TestDilatedConvolutionIsItsDefinitionInAnyChunking(t *testing.T) {
	const rows, channels, kernel, step = 29, 5, 3, 4
	random := rand.New(rand.NewPCG(1, 2))
	x, weight := normals(random, rows*channels), normals(random, channels*kernel)
	whole, state := dilated(t, x, weight, channels, step, rows)
	for r := range rows {
		for c := range channels {
			want := 0.0
			for j := range kernel {
				if at := r - (kernel-1-j)*step; at >= 0 {
					want += float64(weight[c*kernel+j]) * float64(x[at*channels+c])
				}
			}
			if got := whole[r*channels+c]; !(math.Abs(float64(got)-want) <= 1e-5) {
				t.Fatalf("row %d, channel %d: got %v, want %v", r, c, got, want)
			}
		}
	}
	if !slices.Equal(state, x[len(x)-len(state):]) {
		t.Errorf("state of %d elements is not the last operands", len(state))
	}
	for _, chunk := range []int{1, 2, 7, 9} {
		got, kept := dilated(t, x, weight, channels, step, chunk)
		if !slices.Equal(got, whole) || !slices.Equal(kept, state) {
			t.Errorf("chunks of %d tokens have other bits", chunk)
		}
	}
}

func TestGatesOfStreams(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const rows, streams, width = 3, 2, 9
	random := rand.New(rand.NewPCG(3, 4))
	keys, queries, value := normals(random, rows*streams*width), normals(random, rows*streams*width), normals(random, rows*width)
	clear(keys[:width]) // a product of 0
	for i := range width {
		queries[width+i] = 1e-9 * keys[width+i] // one near it
	}
	got := slices.Clone(keys)
	dst := tensor.Floats(got, rows, streams*width)
	b.GateStreams(dst, tensor.Floats(value, rows, width), dst, tensor.Floats(queries, rows, streams*width))
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	for r := range rows {
		for k := range streams {
			at := (r*streams + k) * width
			d := dot64(keys[at:at+width], queries[at:at+width]) / math.Sqrt(width)
			g := math.Sqrt(math.Max(math.Abs(d), 1e-6))
			if d == 0 {
				g = 0
			}
			by := 1 / (1 + math.Exp(-math.Copysign(g, d)))
			for i := range width {
				if want := by * float64(value[r*width+i]); !(math.Abs(float64(got[at+i])-want) <= 1e-6) {
					t.Fatalf("row %d, stream %d, channel %d: got %v, want %v", r, k, i, got[at+i], want)
				}
			}
		}
	}
}

// An averagesCase is one sequence with averaged blocks, whose keys are used as they are.
type averagesCase struct {
	*blocksCase
	heads int // of the indexer
}

func newAveragesCase(heads, size, count int) *averagesCase {
	c := &averagesCase{newBlocksCase(heads, size, count, 0), heads}
	c.blocks.Heads, c.blocks.Tail = 1, true
	return c
}

// run computes all rows in passes of chunk tokens.
func (c *averagesCase) run(t *testing.T, d meta.DType, threads, chunk int) []float32 {
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const page = 16
	n, a := (c.tokens+page-1)/page, c.args
	pages := func(heads, dim int) tensor.Tensor { return newPages(t, b, d, n, page, heads, dim) }
	kv := backend.KV{PageTokens: page, Heads: 2, K: pages(2, a.Dim), V: pages(2, a.ValueDim)}
	index := backend.KV{PageTokens: page, Heads: 1, K: pages(1, c.blocks.Dim), V: pages(1, c.blocks.Dim)}
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
		blocks, chosen := tensor.Floats(make([]float32, rows*c.blocks.Dim), rows, c.blocks.Dim), tensor.Floats(make([]float32, rows*c.blocks.Count), rows, c.blocks.Count)
		ones := tensor.Floats(slices.Repeat([]float32{1}, rows*c.heads), rows, c.heads)
		b.AverageKeys(blocks, index, spans, c.blocks.Size)
		second := index
		second.K = second.V
		b.StoreKV(second, blocks, tensor.Tensor{}, slots)
		b.ChooseEntries(chosen, cut(c.index, from, rows), ones, index, spans,
			backend.IndexArgs{Heads: c.heads, Dim: c.blocks.Dim, Count: c.blocks.Count, Scale: 1, WeightScale: 1}, backend.EntryArgs{Rate: c.blocks.Size, Extra: c.blocks.Dim})
		b.AttentionBlocks(cut(out, from, rows), cut(c.q, from, rows), chosen, kv, spans, a, c.blocks)
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// positions are those that row r sees, by the definition.
func (c *averagesCase) positions(r int) (seen []int) {
	x := c.blocks
	scores := make([]float32, (r+1)/x.Size)
	for block := range scores {
		for h := range c.heads {
			sum := 0.0
			for j := block * x.Size; j < (block+1)*x.Size; j++ {
				sum += dot64(c.index[(r*c.heads+h)*x.Dim:][:x.Dim], c.indexKeys[j*x.Dim:][:x.Dim])
			}
			scores[block] += float32(max(0, sum/float64(x.Size)))
		}
	}
	for _, block := range chosenOf(scores, min(x.Count, len(scores))) {
		for j := range x.Size {
			seen = append(seen, block*x.Size+j)
		}
	}
	for j := len(scores) * x.Size; j <= r; j++ {
		seen = append(seen, j)
	}
	return seen
}

func TestAttentionToAveragedBlocksIsItsDefinition(t *testing.T) {
	for _, c := range []*averagesCase{newAveragesCase(8, 7, 3), newAveragesCase(7, 1, 20), newAveragesCase(8, 70, 2), newAveragesCase(9, 3, 1)} {
		got, a := c.run(t, meta.Float32, 2, c.tokens), c.args
		for r := range c.tokens {
			seen := c.positions(r)
			for h := range a.Heads {
				kv, sum, y := h/(a.Heads/a.KVHeads), 0.0, make([]float64, a.ValueDim)
				for _, j := range seen {
					weight := math.Exp(dot64(c.q[(r*a.Heads+h)*a.Dim:][:a.Dim], c.keys[(j*a.KVHeads+kv)*a.Dim:][:a.Dim]) * float64(a.Scale))
					sum += weight
					for i := range y {
						y[i] += weight * float64(c.values[(j*a.KVHeads+kv)*a.ValueDim+i])
					}
				}
				for i := range y {
					if g := float64(got[(r*a.Heads+h)*a.ValueDim+i]); !(math.Abs(g-y[i]/sum) <= 1e-5) {
						t.Fatalf("%+v: row %d, head %d, channel %d: got %v, want %v", c.blocks, r, h, i, g, y[i]/sum)
					}
				}
			}
		}
	}
}

func TestAttentionToAveragedBlocksHasTheSameBitsInAnyChunking(t *testing.T) {
	c := newAveragesCase(5, 7, 3)
	for _, d := range []meta.DType{meta.Float32, meta.BFloat16, meta.Int8} {
		want := c.run(t, d, 1, c.tokens)
		for _, chunk := range []int{1, 3, 64} {
			if !slices.Equal(c.run(t, d, 3, chunk), want) {
				t.Errorf("%v: chunks of %d tokens have other bits", d, chunk)
			}
		}
	}
}
