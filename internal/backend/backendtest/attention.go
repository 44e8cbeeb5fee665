package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// sequence is one sequence of an attention test: all its queries, keys and values.
type sequence struct {
	n       int
	q, k, v []float32
	pages   []int32
}

// cache is a layer's pages with the sequences stored in them.
type cache struct {
	e     *env
	a     backend.AttentionArgs
	kv    backend.KV
	seqs  []*sequence
	sinks []float32
}

// newCache stores sequences of the given lengths. Free pages hold NaN.
func newCache(e *env, a backend.AttentionArgs, d meta.DType, pageTokens int, lengths ...int) *cache {
	e.Helper()
	c := &cache{e: e, a: a}
	pages := 2
	for _, n := range lengths {
		pages += (n + pageTokens - 1) / pageTokens
	}
	kw, vw := a.KVHeads*a.Dim, a.KVHeads*a.ValueDim
	nan := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(math.NaN())
		}
		return v
	}
	c.kv = backend.KV{
		K:          e.place(d, nan(pages*pageTokens*kw), 0, pages, pageTokens, kw),
		V:          e.place(d, nan(pages*pageTokens*vw), 0, pages, pageTokens, vw),
		PageTokens: pageTokens,
	}
	order := e.random.Perm(pages)
	for _, n := range lengths {
		s := &sequence{n: n, q: e.values(n * a.Heads * a.Dim), k: e.values(n * kw), v: e.values(n * vw)}
		for range (n + pageTokens - 1) / pageTokens {
			s.pages = append(s.pages, int32(order[0]))
			order = order[1:]
		}
		var slots []int32
		for i := range n {
			slots = append(slots, s.pages[i/pageTokens]*int32(pageTokens)+int32(i%pageTokens))
		}
		e.StoreKV(c.kv, e.floats(s.k, n, kw), e.floats(s.v, n, vw), slots)
		s.k, s.v = rounded(d, s.k), rounded(d, s.v)
		c.seqs = append(c.seqs, s)
	}
	if !a.Sinks.IsZero() {
		c.sinks = e.read(a.Sinks)
	}
	return c
}

// run computes rows [begin, end) of each sequence in one call.
func (c *cache) run(begin, end []int) [][]float32 {
	c.e.Helper()
	var q []float32
	var spans []backend.Span
	width := c.a.Heads * c.a.Dim
	for i, s := range c.seqs {
		spans = append(spans, backend.Span{First: len(q) / width, Rows: end[i] - begin[i], Start: begin[i], Pages: s.pages})
		q = append(q, s.q[begin[i]*width:end[i]*width]...)
	}
	n := len(q) / width
	dst := c.e.empty(n, c.a.Heads*c.a.ValueDim)
	c.e.Attention(dst, c.e.strided(q, n, width, 3), c.kv, spans, c.a)
	all := c.e.read(dst)
	var out [][]float32
	for _, s := range spans {
		size := s.Rows * c.a.Heads * c.a.ValueDim
		out, all = append(out, all[:size]), all[size:]
	}
	return out
}

// reference is the attention of all rows of one sequence.
func (c *cache) reference(s *sequence) []float64 {
	a := c.a
	var out []float64
	for t := range s.n {
		lo := 0
		if a.Window > 0 {
			lo = max(0, t+1-a.Window)
		}
		for h := range a.Heads {
			kvHead := h / (a.Heads / a.KVHeads)
			scores := make([]float64, t+1-lo)
			sink := math.Inf(-1)
			if c.sinks != nil {
				sink = float64(c.sinks[h])
			}
			top := sink
			for j := range scores {
				dot := 0.0
				for d := range a.Dim {
					dot += float64(s.q[(t*a.Heads+h)*a.Dim+d]) * float64(s.k[((lo+j)*a.KVHeads+kvHead)*a.Dim+d])
				}
				dot *= float64(a.Scale)
				if a.Softcap > 0 {
					dot = float64(a.Softcap) * math.Tanh(dot/float64(a.Softcap))
				}
				scores[j] = dot
				top = math.Max(top, dot)
			}
			total := math.Exp(sink - top)
			sum := make([]float64, a.ValueDim)
			for j, score := range scores {
				p := math.Exp(score - top)
				total += p
				for d := range sum {
					sum[d] += p * float64(s.v[((lo+j)*a.KVHeads+kvHead)*a.ValueDim+d])
				}
			}
			for _, v := range sum {
				out = append(out, v/total)
			}
		}
	}
	return out
}

func attentionCases(e *env) []backend.AttentionArgs {
	sinks := e.floats([]float32{0.5, -1, 3, 0, 1, 2, -3, 0.25}, 8)
	return []backend.AttentionArgs{
		{Heads: 1, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 0.35},
		{Heads: 4, KVHeads: 4, Dim: 16, ValueDim: 24, Scale: 0.25},
		{Heads: 8, KVHeads: 2, Dim: 64, ValueDim: 64, Scale: 0.125},
		{Heads: 6, KVHeads: 2, Dim: 20, ValueDim: 13, Scale: 0.3, Window: 5},
		{Heads: 8, KVHeads: 1, Dim: 80, ValueDim: 64, Scale: 0.1, Softcap: 2},
		{Heads: 8, KVHeads: 4, Dim: 32, ValueDim: 32, Scale: 0.2, Window: 30, Sinks: sinks},
		{Heads: 30, KVHeads: 1, Dim: 12, ValueDim: 10, Scale: 0.3},
		{Heads: 3, KVHeads: 3, Dim: 128, ValueDim: 128, Scale: 0.09, Window: 1},
	}
}

// testAttention has all options against the reference, three sequences in a call.
func testAttention(e *env) {
	for i, a := range attentionCases(e) {
		for _, d := range dtypes {
			c := newCache(e, a, d, []int{1, 4, 16, 32}[i%4], 1, 19, 45)
			for j, got := range c.run([]int{0, 0, 0}, []int{1, 19, 45}) {
				close64(e, name("attention", i, d, "sequence", j), got, c.reference(c.seqs[j]), 1e-5, 1)
			}
		}
	}
}

// testAttentionChunks: a row has the same bits alone, in chunks and in the whole.
func testAttentionChunks(e *env) {
	for i, a := range attentionCases(e) {
		const n = 42
		c := newCache(e, a, dtypes[i%3], 8, n)
		whole := c.run([]int{0}, []int{n})[0]
		width := a.Heads * a.ValueDim
		for _, chunk := range []int{1, 2, 7, 30} {
			for begin := 0; begin < n; begin += chunk {
				end := min(begin+chunk, n)
				sameBits(e, name("attention", i, "rows", begin, end), c.run([]int{begin}, []int{end})[0], whole[begin*width:end*width])
			}
		}
	}
}

// testAttentionSharedPages: values may be the first channels of the keys.
func testAttentionSharedPages(e *env) {
	a := backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 24, ValueDim: 16, Scale: 0.2}
	const n, pageTokens = 21, 8
	k := e.place(meta.Float32, make([]float32, 3*pageTokens*a.Dim), 0, 3, pageTokens, a.Dim)
	c := &cache{e: e, a: a, kv: backend.KV{K: k, V: k, PageTokens: pageTokens}}
	s := &sequence{n: n, q: e.values(n * a.Heads * a.Dim), k: e.values(n * a.Dim), pages: []int32{2, 0, 1}}
	var slots []int32
	for i := range n {
		slots = append(slots, s.pages[i/pageTokens]*pageTokens+int32(i%pageTokens))
		s.v = append(s.v, s.k[i*a.Dim:i*a.Dim+a.ValueDim]...)
	}
	e.StoreKV(c.kv, e.floats(s.k, n, a.Dim), tensor.Tensor{}, slots)
	c.seqs = append(c.seqs, s)
	close64(e, "attention over shared pages", c.run([]int{0}, []int{n})[0], c.reference(s), 1e-5, 1)
}
