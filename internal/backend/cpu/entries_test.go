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

// An entryCase is one sequence of compressed attention with an indexer, in pages that do not lie in order.
type entryCase struct {
	tokens, count, window     int
	heads, dim, index         int
	pool                      backend.PoolArgs
	x, bias, q, keys          []float32
	queries, weights, entries []float32 // of the indexer, whose keys are the last channels of entries
}

func newEntryCase(overlap bool) *entryCase {
	random := rand.New(rand.NewPCG(5, 6))
	values := func(n int) []float32 { return normals(random, n) }
	c := &entryCase{tokens: 220, count: 66, window: 9, heads: 6, dim: 24, index: 8, pool: backend.PoolArgs{Rate: 3, Dim: 70, Overlap: overlap}}
	series := c.pool.Series()
	c.x, c.bias = values(c.tokens*2*series*c.pool.Dim), values(c.pool.Rate*series*c.pool.Dim)
	c.q, c.keys = values(c.tokens*c.heads*c.dim), values(c.tokens*c.dim)
	c.queries, c.weights, c.entries = values(c.tokens*4*c.index), values(c.tokens*4), values(c.tokens*(c.dim+c.index))
	return c
}

func (c *entryCase) cut(v []float32, from, rows int) tensor.Tensor {
	width := len(v) / c.tokens
	return tensor.Floats(v[from*width:(from+rows)*width], rows, width)
}

// pooled computes the entries of all rows in passes of chunk tokens, in the states of two slots in turn. It
// saves the state after three tokens of a pass, and starts the next pass from there.
func (c *entryCase) pooled(t *testing.T, threads, chunk int) []float32 {
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	out := make([]float32, c.tokens*c.pool.Dim)
	memory := tensor.Floats(make([]float32, 3*(c.pool.State()+5)), 3, c.pool.State()+5)
	slot := int32(-1)
	for from := 0; from < c.tokens; {
		rows := min(chunk, c.tokens-from)
		span := backend.StateSpan{Rows: rows, From: slot, To: (slot + 1) % 2}
		next := from + rows
		if rows > 3 {
			span.SaveAfter, span.Save, next = 3, 2, from+3
		}
		b.Pool(c.cut(out, from, rows), c.cut(c.x, from, rows), tensor.Floats(c.bias, len(c.bias)),
			backend.States{Memory: memory, First: 5, Spans: []backend.StateSpan{span}}, []backend.Span{{Rows: rows, Start: from}}, c.pool)
		if slot = span.To; rows > 3 {
			slot = 2
		}
		from = next
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPoolOfEntries compares entries with their definition, and the bits of passes of several lengths.
func TestPoolOfEntries(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		c := newEntryCase(overlap)
		got := c.pooled(t, 1, c.tokens)
		series, dim, rate := c.pool.Series(), c.pool.Dim, c.pool.Rate
		for r := range c.tokens {
			for i := range dim {
				var sum, total float64
				for p := max(0, r+1-rate*series); p <= r && (r+1)%rate == 0; p++ {
					s := 0
					if overlap && p > r-rate {
						s = 1
					}
					x := c.x[p*2*series*dim:]
					e := math.Exp(float64(x[(series+s)*dim+i]) + float64(c.bias[(p%rate*series+s)*dim+i]))
					sum, total = sum+e*float64(x[s*dim+i]), total+e
				}
				want := 0.0
				if total > 0 {
					want = sum / total
				}
				if v := float64(got[r*dim+i]); !(math.Abs(v-want) <= 1e-5) {
					t.Fatalf("overlap %v, row %d, channel %d: got %v, want %v", overlap, r, i, v, want)
				}
			}
		}
		for _, chunk := range []int{1, 2, 7, 50} {
			for i, v := range c.pooled(t, 1+chunk%2, chunk) {
				if math.Float32bits(v) != math.Float32bits(got[i]) {
					t.Fatalf("overlap %v, passes of %d: element %d is %v, want %v", overlap, chunk, i, v, got[i])
				}
			}
		}
	}
}

// attended computes all rows in passes of chunk tokens; chooses says whether an indexer chooses entries.
func (c *entryCase) attended(t *testing.T, d meta.DType, threads, chunk int, chooses bool) []float32 {
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
	if kv.V, err = b.New(d, n, page, backend.KVRow(d, 1, c.dim+c.index)); err != nil {
		t.Fatal(err)
	}
	table := make([]int32, n)
	for i := range table {
		table[i] = int32((i*5 + 3) % n)
	}
	sinks := tensor.Floats([]float32{0.5, -1, 2, 0, 1, -3}, c.heads)
	out := make([]float32, c.tokens*c.heads*c.dim)
	at := backend.EntryArgs{Rate: c.pool.Rate, First: c.dim, Extra: c.index}
	for from := 0; from < c.tokens; from += chunk {
		rows := min(chunk, c.tokens-from)
		slots := make([]int32, rows)
		for i := range slots {
			slots[i] = table[(from+i)/page]*page + int32((from+i)%page)
		}
		b.StoreKV(kv, c.cut(c.keys, from, rows), c.cut(c.entries, from, rows), slots)
		spans := []backend.Span{{Rows: rows, Start: from, Pages: table}}
		var chosen tensor.Tensor
		if chooses {
			chosen = tensor.Floats(make([]float32, rows*c.count), rows, c.count)
			b.ChooseEntries(chosen, c.cut(c.queries, from, rows), c.cut(c.weights, from, rows), kv, spans,
				backend.IndexArgs{Heads: 4, Dim: c.index, Count: c.count, Scale: 0.3, WeightScale: 0.5}, at)
		}
		b.AttentionEntries(c.cut(out, from, rows), c.cut(c.q, from, rows), chosen, kv, spans,
			backend.AttentionArgs{Heads: c.heads, KVHeads: 1, Dim: c.dim, ValueDim: c.dim, Scale: 0.2, Window: c.window, Sinks: sinks}, at)
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// keysOf returns the vectors that row r sees, by the definition.
func (c *entryCase) keysOf(r int, chooses bool) (keys [][]float32) {
	for p := max(0, r+1-c.window); p <= r; p++ {
		keys = append(keys, c.keys[p*c.dim:][:c.dim])
	}
	width := c.dim + c.index
	entry := func(i int) []float32 { return c.entries[((i+1)*c.pool.Rate-1)*width:][:width] }
	scores := make([]float32, (r+1)/c.pool.Rate)
	list := make([]int, len(scores))
	for i := range scores {
		list[i] = i
		for h := range 4 {
			var dot float64
			for j := range c.index {
				dot += float64(c.queries[(r*4+h)*c.index+j]) * float64(entry(i)[c.dim+j])
			}
			scores[i] += float32(float64(c.weights[r*4+h]) * 0.5 * max(0, dot*0.3))
		}
	}
	if chooses && len(scores) > c.count {
		list = chosenOf(scores, c.count)
	}
	for _, i := range list {
		keys = append(keys, entry(i)[:c.dim])
	}
	return keys
}

// TestAttentionToEntries compares rows with the definition, and the bits of passes of several lengths.
func TestAttentionToEntries(t *testing.T) {
	for _, chooses := range []bool{false, true} {
		c := newEntryCase(true)
		if !chooses {
			c.pool.Rate = 7
		}
		got := c.attended(t, meta.Float32, 1, c.tokens, chooses)
		for r := range c.tokens {
			keys := c.keysOf(r, chooses)
			for h := range c.heads {
				q := c.q[(r*c.heads+h)*c.dim:][:c.dim]
				total, want := math.Exp([]float64{0.5, -1, 2, 0, 1, -3}[h]), make([]float64, c.dim)
				for _, k := range keys {
					var dot float64
					for i, v := range k {
						dot += float64(v) * float64(q[i])
					}
					e := math.Exp(dot * 0.2)
					total += e
					for i, v := range k {
						want[i] += e * float64(v)
					}
				}
				for i := range want {
					if v := float64(got[(r*c.heads+h)*c.dim+i]); !(math.Abs(v-want[i]/total) <= 1e-4) {
						t.Fatalf("choice %v, row %d, head %d, channel %d: got %v, want %v", chooses, r, h, i, v, want[i]/total)
					}
				}
			}
		}
		for _, d := range []meta.DType{meta.Float32, meta.BFloat16, meta.Int8} {
			whole := c.attended(t, d, 1, c.tokens, chooses)
			for _, chunk := range []int{1, 7, 100} {
				for i, v := range c.attended(t, d, 3, chunk, chooses) {
					if math.Float32bits(v) != math.Float32bits(whole[i]) {
						t.Fatalf("choice %v, %v, passes of %d: element %d is %v, want %v", chooses, d, chunk, i, v, whole[i])
					}
				}
			}
		}
	}
}

// TestStreams compares the weights and results of hyper-connections with the definition.
func TestStreams(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	random := rand.New(rand.NewPCG(7, 8))
	values := func(n int) []float32 { return normals(random, n) }
	const rows, n, hidden, eps = 5, 3, 10, 1e-3
	a := backend.StreamArgs{Count: n, Iterations: 4, Eps: eps}
	raw, base, scale := values(rows*(2+n)*n), values((2+n)*n), values(3)
	x, y := values(rows*n*hidden), values(rows*hidden)
	weights, collapsed, expanded := tensor.Floats(append([]float32(nil), raw...), rows, (2+n)*n), tensor.Floats(make([]float32, rows*hidden), rows, hidden), append([]float32(nil), x...)
	b.StreamWeights(weights, tensor.Floats(base, len(base)), tensor.Floats(scale, 3), a)
	b.CollapseStreams(collapsed, tensor.Floats(x, rows, n*hidden), weights, a)
	b.ExpandStreams(tensor.Floats(expanded, rows, n*hidden), tensor.Floats(y, rows, hidden), weights, a)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	near := func(what string, got float32, want float64) {
		t.Helper()
		if !(math.Abs(float64(got)-want) <= 1e-5) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	for r := range rows {
		pre, post, comb := refStreams(raw[r*(2+n)*n:][:(2+n)*n], base, scale, a)
		for i := range hidden {
			sum := 0.0
			for j := range n {
				sum += pre[j] * float64(x[(r*n+j)*hidden+i])
			}
			near(fmt.Sprintf("row %d, operand %d", r, i), collapsed.Row(r)[i], sum)
			for k := range n {
				sum := post[k] * float64(y[r*hidden+i])
				for j := range n {
					sum += comb[j][k] * float64(x[(r*n+j)*hidden+i])
				}
				near(fmt.Sprintf("row %d, stream %d, channel %d", r, k, i), expanded[(r*n+k)*hidden+i], sum)
			}
		}
	}
}

// refStreams is the definition of the weights.
func refStreams(raw, base, scale []float32, a backend.StreamArgs) (pre, post []float64, comb [][]float64) {
	n, eps := a.Count, float64(a.Eps)
	at := func(i, s int) float64 { return float64(raw[i])*float64(scale[s]) + float64(base[i]) }
	for i := range n {
		pre = append(pre, 1/(1+math.Exp(-at(i, 0)))+eps)
		post = append(post, 2/(1+math.Exp(-at(n+i, 1))))
		row, total := make([]float64, n), 0.0
		for k := range row {
			row[k] = math.Exp(at(2*n+i*n+k, 2))
			total += row[k]
		}
		for k := range row {
			row[k] = row[k]/total + eps
		}
		comb = append(comb, row)
	}
	for i := range a.Iterations {
		if i > 0 {
			for j := range n {
				sum := eps
				for k := range n {
					sum += comb[j][k]
				}
				for k := range n {
					comb[j][k] /= sum
				}
			}
		}
		for k := range n {
			sum := eps
			for j := range n {
				sum += comb[j][k]
			}
			for j := range n {
				comb[j][k] /= sum
			}
		}
	}
	return pre, post, comb
}

// TestCompressedOperationsAllocateNothing holds the law that decoding leaves the Go heap alone.
func TestCompressedOperationsAllocateNothing(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	zeros := func(dims ...int) tensor.Tensor { return tensor.Floats(make([]float32, meta.Elements(dims)), dims...) }
	pool := backend.PoolArgs{Rate: 2, Dim: 8, Overlap: true}
	kv := backend.KV{K: zeros(4, 16, 8), V: zeros(4, 16, 12), PageTokens: 16}
	spans := []backend.Span{{Rows: 1, Start: 40, Pages: []int32{2, 0, 1}}}
	states := backend.States{Memory: zeros(2, pool.State()), Spans: []backend.StateSpan{{Rows: 1, To: 1}}}
	x, dst, bias, chosen, weights := zeros(1, 32), zeros(1, 8), zeros(32), zeros(1, 3), zeros(1, 8)
	streams, at := backend.StreamArgs{Count: 2, Iterations: 3}, backend.EntryArgs{Rate: 2, First: 8, Extra: 4}
	ops := func() {
		b.Pool(dst, x, bias, states, spans, pool)
		b.ChooseEntries(chosen, zeroQueries, weights.Columns(0, 2), kv, spans, backend.IndexArgs{Heads: 2, Dim: 4, Count: 3}, at)
		b.AttentionEntries(x.Columns(0, 16), x.Columns(16, 32), chosen, kv, spans, backend.AttentionArgs{Heads: 2, KVHeads: 1, Dim: 8, ValueDim: 8, Window: 5}, at)
		b.StreamWeights(weights, bias.Slice(0, 8), bias.Slice(0, 3), streams)
		b.CollapseStreams(dst, x.Columns(0, 16), weights, streams)
		b.ExpandStreams(x.Columns(0, 16), dst, weights, streams)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	ops()
	if n := testing.AllocsPerRun(20, ops); n > 0 {
		t.Errorf("operations allocate %v times", n)
	}
}

var zeroQueries = tensor.Floats(make([]float32, 8), 1, 8)

// TestRouteByTable: given experts are weighed by their scores, whatever their rank.
func TestRouteByTable(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	logits := []float32{3, -2, 0.5, 80}
	experts, weights := []int32{1, 0, 3, 2}, make([]float32, 4)
	b.Route(experts, weights, tensor.Floats(append(logits, logits...), 2, 4), tensor.Tensor{}, &meta.MoESpec{TopK: 2, Count: 4, Score: meta.ScoreSqrtSoftplus, Renormalise: true, Scale: 2, Table: "table"})
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	score := func(x float64) float64 { return math.Sqrt(math.Log1p(math.Exp(x))) }
	for i, e := range []int32{1, 0, 3, 2} {
		total := score(float64(logits[experts[i/2*2]])) + score(float64(logits[experts[i/2*2+1]]))
		if want := 2 * score(float64(logits[e])) / total; experts[i] != e || !(math.Abs(float64(weights[i])-want) <= 1e-6) {
			t.Errorf("choice %d: expert %d of weight %v, want %d of %v", i, experts[i], weights[i], e, want)
		}
	}
}

// TestClampedSiLU compares the gate with its definition.
func TestClampedSiLU(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g, up := []float32{-3, -0.5, 0.25, 1, 4, 40}, []float32{5, -5, 0.5, -0.5, 1.5, -1.5}
	out := tensor.Floats(make([]float32, len(g)), 1, len(g))
	b.Gate(out, tensor.Floats(g, 1, len(g)), tensor.Floats(up, 1, len(g)), meta.ActClampedSiLU, 1.25)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	for i := range g {
		x := min(float64(g[i]), 1.25)
		if want := x / (1 + math.Exp(-x)) * max(-1.25, min(1.25, float64(up[i]))); !(math.Abs(float64(out.Row(0)[i])-want) <= 1e-6) {
			t.Errorf("gate %v, up %v: got %v, want %v", g[i], up[i], out.Row(0)[i], want)
		}
	}
}
