package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// chosenOf is the choice that the definition makes: a stable sort by score.
func chosenOf(scores []float32, count int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return scores[order[i]] > scores[order[j]] })
	order = order[:count]
	slices.Sort(order)
	return order
}

func TestChooseHighestTakesTheFirstOfEqualScores(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 2; n < 300; n += 7 {
		scores := make([]float32, n)
		for i := range scores {
			scores[i] = float32(random.IntN(9)-4) / 4
			if scores[i] == 0 && random.IntN(2) == 0 {
				scores[i] = float32(math.Copysign(0, -1))
			}
		}
		for _, count := range []int{1, n / 2, n - 1} {
			chosen := make([]float32, count)
			chooseHighest(chosen, scores)
			for i, want := range chosenOf(scores, count) {
				if got := int(math.Float32bits(chosen[i])); got != want {
					t.Fatalf("%d of %d: position %d is %d, want %d", count, n, i, got, want)
				}
			}
		}
	}
}

// normals are random numbers.
func normals(random *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

// pagesInTurn is a table of n pages that do not lie in order.
func pagesInTurn(n int) []int32 {
	table := make([]int32, n)
	for i := range table {
		table[i] = int32((i*7 + 3) % n)
	}
	return table
}

// slotsOf are those of rows from a position on, in pages of so many tokens.
func slotsOf(table []int32, page, from, rows int) []int32 {
	slots := make([]int32, rows)
	for i := range slots {
		slots[i] = table[(from+i)/page]*int32(page) + int32((from+i)%page)
	}
	return slots
}

// A sparseCase is one sequence with an indexer, in pages that do not lie in order.
type sparseCase struct {
	tokens, count                      int
	heads, dim, value                  int
	q, index, weights, keys, indexKeys []float32
	sinks                              []float32
}

func newSparseCase() *sparseCase {
	random := rand.New(rand.NewPCG(3, 4))
	values := func(n int) []float32 { return normals(random, n) }
	c := &sparseCase{tokens: 150, count: 70, heads: 6, dim: 24, value: 16}
	c.q, c.keys = values(c.tokens*c.heads*c.dim), values(c.tokens*c.dim)
	c.sinks = []float32{0.5, -1, 2, 0, 1, -3}
	c.index, c.weights, c.indexKeys = values(c.tokens*3*8), values(c.tokens*3), values(c.tokens*8)
	return c
}

// run computes all rows in passes of chunk tokens.
func (c *sparseCase) run(t *testing.T, d meta.DType, threads, chunk int) []float32 {
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const page = 16
	n := (c.tokens + page - 1) / page
	kv := backend.KV{PageTokens: page, Heads: 1}
	if kv.K, err = b.New(d, n, page, backend.KVRow(d, 1, c.dim)); err != nil {
		t.Fatal(err)
	}
	index := kv
	if index.K, err = b.New(d, n, page, backend.KVRow(d, 1, 8)); err != nil {
		t.Fatal(err)
	}
	kv.V, index.V = kv.K, index.K
	table := pagesInTurn(n)
	out := make([]float32, c.tokens*c.heads*c.value)
	cut := func(v []float32, from, rows int) tensor.Tensor {
		width := len(v) / c.tokens
		return tensor.Floats(v[from*width:(from+rows)*width], rows, width)
	}
	for from := 0; from < c.tokens; from += chunk {
		rows := min(chunk, c.tokens-from)
		slots := slotsOf(table, page, from, rows)
		b.StoreKV(kv, cut(c.keys, from, rows), tensor.Tensor{}, slots)
		b.StoreKV(index, cut(c.indexKeys, from, rows), tensor.Tensor{}, slots)
		spans := []backend.Span{{Rows: rows, Start: from, Pages: table}}
		chosen := tensor.Floats(make([]float32, rows*c.count), rows, c.count)
		b.Choose(chosen, cut(c.index, from, rows), cut(c.weights, from, rows), index, spans, backend.IndexArgs{Heads: 3, Dim: 8, Count: c.count, Scale: 0.3, WeightScale: 0.5})
		b.AttentionChosen(cut(out, from, rows), cut(c.q, from, rows), chosen, kv, spans,
			backend.AttentionArgs{Heads: c.heads, KVHeads: 1, Dim: c.dim, ValueDim: c.value, Scale: 0.2, Sinks: tensor.Floats(c.sinks, c.heads)})
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// want computes the definition in float64.
func (c *sparseCase) want() []float64 {
	out := make([]float64, c.tokens*c.heads*c.value)
	for r := range c.tokens {
		scores := make([]float32, r+1)
		for j := range scores {
			for h := range 3 {
				var dot float64
				for i := range 8 {
					dot += float64(c.index[(r*3+h)*8+i]) * float64(c.indexKeys[j*8+i])
				}
				scores[j] += float32(float64(c.weights[r*3+h]) * 0.5 * max(0, dot*0.3))
			}
		}
		chosen := chosenOf(scores, min(c.count, r+1))
		for h := range c.heads {
			sum := math.Exp(float64(c.sinks[h]))
			y := out[(r*c.heads+h)*c.value:][:c.value]
			for _, j := range chosen {
				var dot float64
				for i := range c.dim {
					dot += float64(c.q[(r*c.heads+h)*c.dim+i]) * float64(c.keys[j*c.dim+i])
				}
				weight := math.Exp(dot * 0.2)
				sum += weight
				for i := range y {
					y[i] += weight * float64(c.keys[j*c.dim+i])
				}
			}
			for i := range y {
				y[i] /= sum
			}
		}
	}
	return out
}

func TestSparseAttentionIsItsDefinition(t *testing.T) {
	c := newSparseCase()
	got := c.run(t, meta.Float32, 2, c.tokens)
	for i, want := range c.want() {
		if !(math.Abs(float64(got[i])-want) <= 1e-5) {
			t.Fatalf("element %d: got %v, want %v", i, got[i], want)
		}
	}
}

func TestSparseAttentionHasTheSameBitsInAnyChunking(t *testing.T) {
	c := newSparseCase()
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

func TestSparseAttentionAllocatesNothing(t *testing.T) {
	scores, chosen := make([]float32, 500), make([]float32, 100)
	for i := range scores {
		scores[i] = float32(i % 37)
	}
	if n := testing.AllocsPerRun(10, func() { chooseHighest(chosen, scores) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
