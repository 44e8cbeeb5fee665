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
	states  []float32 // of distance biases, including those of a cache
}

// cache is a layer's pages with the sequences stored in them.
type cache struct {
	e     *env
	a     backend.AttentionArgs
	kv    backend.KV
	seqs  []*sequence
	sinks []float32
	relative
}

// newCache stores sequences of the given lengths. It fills free pages with NaN.
func newCache(e *env, a backend.AttentionArgs, d meta.DType, pageTokens int, lengths ...int) *cache {
	e.Helper()
	c := &cache{e: e, a: a}
	pages := 2
	for _, n := range lengths {
		pages += (n + pageTokens - 1) / pageTokens
	}
	kw, vw := a.KVHeads*a.Dim, a.KVHeads*a.ValueDim
	c.kv = backend.KV{
		K:          e.pagesOf(d, pages, pageTokens, a.KVHeads, a.Dim),
		V:          e.pagesOf(d, pages, pageTokens, a.KVHeads, a.ValueDim),
		PageTokens: pageTokens, Heads: a.KVHeads,
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
		s.k, s.v = stored(d, s.k, a.Dim), stored(d, s.v, a.ValueDim)
		c.seqs = append(c.seqs, s)
	}
	if !a.Sinks.IsZero() {
		c.sinks = e.read(a.Sinks)
	}
	return c
}

// pagesOf returns pages filled with NaN.
func (e *env) pagesOf(d meta.DType, pages, tokens, heads, dim int) tensor.Tensor {
	e.Helper()
	row := backend.KVRow(d, heads, dim)
	if d == meta.Int8 {
		return e.place(d, nil, 0, pages, tokens, row)
	}
	v := make([]float32, pages*tokens*row)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return e.place(d, v, 0, pages, tokens, row)
}

// stored returns v as pages of dtype d hold it, for heads of dim channels. Int8 stands for blocks
// of q8_0.
func stored(d meta.DType, v []float32, dim int) []float32 {
	if d != meta.Int8 {
		return rounded(d, v)
	}
	const size = 32
	out := make([]float32, 0, len(v))
	for ; len(v) > 0; v = v[dim:] {
		for begin := 0; begin < dim; begin += size {
			block := v[begin:min(begin+size, dim)]
			top := 0.0
			for _, x := range block {
				top = math.Max(top, math.Abs(float64(x)))
			}
			scale := float64(rounded(meta.Float16, []float32{float32(top) / 127})[0])
			for _, x := range block {
				code := 0.0
				if scale != 0 {
					code = math.RoundToEven(float64(x * float32(1/scale)))
				}
				out = append(out, float32(scale*max(min(code, 127), -127)))
			}
		}
	}
	return out
}

// run computes rows [begin, end) of each sequence in one call.
func (c *cache) run(begin, end []int) [][]float32 {
	c.e.Helper()
	return c.runAs(nil, begin, end)
}

// runAs is like run, but the first prompt tokens of each sequence are rows of a prompt.
func (c *cache) runAs(prompt, begin, end []int) [][]float32 {
	c.e.Helper()
	a := c.a
	var q []float32
	var spans []backend.Span
	width := c.a.Heads * c.a.Dim
	for i, s := range c.seqs {
		spans = append(spans, backend.Span{First: len(q) / width, Rows: end[i] - begin[i], Start: begin[i], Pages: s.pages})
		q = append(q, s.q[begin[i]*width:end[i]*width]...)
		for t := begin[i]; prompt != nil && t < end[i]; t++ {
			a.Prompts = append(a.Prompts, t < prompt[i])
		}
	}
	n := len(q) / width
	dst := c.e.empty(n, c.a.Heads*c.a.ValueDim)
	a.Relative = c.relative.of(c, begin, end)
	c.e.Attention(dst, c.e.strided(q, n, width, 3), c.kv, spans, a)
	all := c.e.read(dst)
	var out [][]float32
	for _, s := range spans {
		size := s.Rows * c.a.Heads * c.a.ValueDim
		out, all = append(out, all[:size]), all[size:]
	}
	return out
}

// reference computes the attention of all rows of one sequence in float64.
func (c *cache) reference(s *sequence) []float64 {
	a := c.a
	var out []float64
	for t := range s.n {
		lo := 0
		if a.Window > 0 {
			lo = max(0, t+1-a.Window)
		}
		if a.Chunk > 0 {
			lo = max(lo, t-t%a.Chunk)
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
				dot += c.relative.bias(a.Heads, s, t, h, t-lo-j)
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
		{Heads: 4, KVHeads: 2, Dim: 16, ValueDim: 16, Scale: 0.25, Chunk: 7},
		{Heads: 8, KVHeads: 2, Dim: 32, ValueDim: 24, Scale: 0.2, Chunk: 3, Sinks: sinks},
		{Heads: 8, KVHeads: 1, Dim: 64, ValueDim: 64, Scale: 0.1, Chunk: 32, Window: 20},
	}
}

// testAttention compares all options with the reference, with three sequences in a call.
func testAttention(e *env) {
	for i, a := range attentionCases(e) {
		for _, d := range kvTypes {
			c := newCache(e, a, d, []int{1, 4, 16, 32}[i%4], 1, 19, 45)
			for j, got := range c.run([]int{0, 0, 0}, []int{1, 19, 45}) {
				close64(e, name("attention", i, d, "sequence", j), got, c.reference(c.seqs[j]), 1e-5, 1)
			}
			// Prompts round softmax weights, and perhaps queries and keys: scores are about 1.
			for j, got := range c.runAs([]int{1, 19, 45}, []int{0, 0, 0}, []int{1, 19, 45}) {
				close64(e, name("attention of a prompt", i, d, "sequence", j), got, c.reference(c.seqs[j]), 0.02, 1)
			}
		}
	}
}

// kvTypes are the dtypes of the KV cache.
var kvTypes = append(dtypes[:len(dtypes):len(dtypes)], meta.Int8)

// testAttentionChunks: a row has the same bits alone, in chunks and in the whole sequence.
func testAttentionChunks(e *env) {
	for i, a := range attentionCases(e) {
		const n = 42
		c := newCache(e, a, kvTypes[i%4], []int{8, 16}[(i+i/4)%2], n)
		for _, prompt := range [][]int{nil, {n}, {13}} {
			whole := c.runAs(prompt, []int{0}, []int{n})[0]
			width := a.Heads * a.ValueDim
			for _, chunk := range []int{1, 2, 7, 30} {
				for begin := 0; begin < n; begin += chunk {
					end := min(begin+chunk, n)
					sameBits(e, name("attention", i, prompt, "rows", begin, end), c.runAs(prompt, []int{begin}, []int{end})[0], whole[begin*width:end*width])
				}
			}
		}
	}
}

// testAttentionLong has sequences of many blocks of keys, in chunks and several in one call.
func testAttentionLong(e *env) {
	for i, a := range []backend.AttentionArgs{
		{Heads: 4, KVHeads: 2, Dim: 32, ValueDim: 32, Scale: 0.3},
		{Heads: 2, KVHeads: 1, Dim: 40, ValueDim: 24, Scale: 0.3, Window: 300},
	} {
		const n = 600
		c := newCache(e, a, kvTypes[3*i%4], 16, n, 270)
		prompt, width := []int{n, 270}, a.Heads*a.ValueDim
		whole := c.runAs(prompt, []int{0, 0}, []int{n, 270})
		for j := range whole {
			close64(e, name("long attention", i, "sequence", j), whole[j], c.reference(c.seqs[j]), 0.02, 1)
		}
		for _, cuts := range [][2]int{{1, 1}, {255, 3}, {256, 257}, {511, 269}, {599, 100}} {
			for j, got := range c.runAs(prompt, cuts[:], []int{n, 270}) {
				sameBits(e, name("long attention", i, "sequence", j, "from", cuts[j]), got, whole[j][cuts[j]*width:])
			}
		}
		exact := c.run([]int{0, 0}, []int{n, 270})
		for _, t := range [][2]int{{0, 0}, {15, 16}, {333, 31}, {599, 269}} {
			for j, got := range c.run(t[:], []int{t[0] + 1, t[1] + 1}) {
				sameBits(e, name("long attention", i, "sequence", j, "token", t[j]), got, exact[j][t[j]*width:][:width])
			}
		}
	}
}

// testAttentionNonFinite: a key or value that is not finite affects only the tokens that see it.
func testAttentionNonFinite(e *env) {
	for _, d := range kvTypes {
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			a := backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 32, ValueDim: 32, Scale: 0.3, Window: 20}
			const n, at = 50, 17
			c := newCache(e, a, d, 8, n)
			clean := c.runAs([]int{n}, []int{0}, []int{n})[0]
			s, width := c.seqs[0], a.Heads*a.ValueDim
			row := append([]float32(nil), s.v[at*a.KVHeads*a.ValueDim:][:a.KVHeads*a.ValueDim]...)
			row[3] = float32(bad)
			slot := []int32{s.pages[at/8]*8 + at%8}
			e.StoreKV(c.kv, e.floats(s.k[at*a.KVHeads*a.Dim:][:a.KVHeads*a.Dim], 1, a.KVHeads*a.Dim), e.floats(row, 1, len(row)), slot)
			for _, begin := range []int{0, 10, 30} {
				got := c.runAs([]int{n}, []int{begin}, []int{n})[0]
				for t := begin; t < n; t++ {
					own, want := got[(t-begin)*width:][:width], clean[t*width:][:width]
					if t < at || t >= at+a.Window {
						sameBits(e, name("attention", d, bad, "row", t), own, want)
					} else if own[3]-own[3] == 0 {
						e.Errorf("attention %v: row %d sees %g, but is %g", d, t, bad, own[3])
					}
				}
			}
		}
	}
}

// testAttentionSharedPages: values may share memory with the first channels of the keys.
func testAttentionSharedPages(e *env) {
	a := backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 24, ValueDim: 16, Scale: 0.2}
	for _, d := range kvTypes {
		sharedPages(e, a, d)
	}
}

func sharedPages(e *env, a backend.AttentionArgs, d meta.DType) {
	const n, pageTokens = 21, 8
	k := e.pagesOf(d, 3, pageTokens, 1, a.Dim)
	c := &cache{e: e, a: a, kv: backend.KV{K: k, V: k, PageTokens: pageTokens, Heads: 1}}
	s := &sequence{n: n, q: e.values(n * a.Heads * a.Dim), k: e.values(n * a.Dim), pages: []int32{2, 0, 1}}
	var slots []int32
	for i := range n {
		slots = append(slots, s.pages[i/pageTokens]*pageTokens+int32(i%pageTokens))
	}
	e.StoreKV(c.kv, e.floats(s.k, n, a.Dim), tensor.Tensor{}, slots)
	s.k = stored(d, s.k, a.Dim)
	for i := range n {
		s.v = append(s.v, s.k[i*a.Dim:i*a.Dim+a.ValueDim]...)
	}
	c.seqs = append(c.seqs, s)
	close64(e, name("attention over shared pages", d), c.run([]int{0}, []int{n})[0], c.reference(s), 1e-5, 1)
	close64(e, name("attention over shared pages of a prompt", d), c.runAs([]int{n}, []int{0}, []int{n})[0], c.reference(s), 0.02, 1)
}
