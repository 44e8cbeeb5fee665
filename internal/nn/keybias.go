package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// keyBias adds a bias of each key to its scores, see [meta.KeyBiasSpec]. The bias is an
// additional channel of the key; every query has the inverse of the scale in that channel. If
// keys are selected, the biases of all heads are also a layer of the cache: a query with a single
// 1 finds the highest of a head.
type keyBias struct {
	path       string
	spec       *meta.KeyBiasSpec
	rate       param
	dt         *linear
	heads, dim int // key heads and their size
	scale      float32
	args       backend.BlockArgs // Count is 0 if all keys are used
	rows       []float32         // a unit vector per head, one after another
}

// keyBias compiles what the spec of a names. It returns nil if there is none.
func (c *compiler) keyBias(n Node, a *attention) (b *keyBias, err error) {
	s := a.spec
	if s.KeyBias == nil {
		return nil, nil
	}
	if s.Gated || s.Shared || s.Softcap != 0 || s.Sinks != "" || len(s.Slopes) > 0 || s.Blocks != nil || s.Difference != nil || s.NormLast || s.KeyBias.Count > 0 && s.Window+s.Chunk > 0 {
		return nil, at(n.Path, "biases of keys with gates, windows, sinks or capped scores")
	}
	c.together("biases of keys")
	b = &keyBias{path: n.Path, spec: s.KeyBias, heads: s.KVHeads, dim: s.HeadDim, scale: s.Scale, rows: make([]float32, s.KVHeads*s.KVHeads)}
	for h := range s.KVHeads {
		b.rows[h*s.KVHeads+h] = 1
	}
	if b.rate, err = c.param(n, s.KeyBias.Rate, s.KVHeads); err != nil {
		return nil, err
	}
	if b.dt, err = c.linearNamed(n, "steps of the keys", s.KeyBias.Step, a.vw, s.KVHeads); err != nil {
		return nil, err
	}
	c.usedNext(b.dt, a.out)
	c.program.heads = max(c.program.heads, s.Heads)
	if s.KeyBias.Count == 0 {
		return b, nil
	}
	b.args = backend.BlockArgs{Heads: s.KVHeads, Dim: s.KVHeads, Size: 1, Count: s.KeyBias.Count}
	return b, c.cache(n.Path, s.KeyBias.Layer, kvcache.LayerShape{KWidth: s.KVHeads, Heads: 1})
}

// extend returns q and k with an additional channel in each head.
func (b *keyBias) extend(c *Context, q, k, v tensor.Tensor) (queries, keys tensor.Tensor) {
	rows, wide := q.Rows(), b.dim+1
	queries, keys = c.arena.take(rows, q.Cols()/b.dim*wide), c.arena.take(rows, b.heads*wide)
	bias := c.arena.take(rows, b.heads)
	if b.dt.forward(c, bias, v); c.err != nil {
		return queries, keys
	}
	c.backend.Gate(bias, bias, tensor.Tensor{}, meta.ActSoftplus, 0)
	if b.speed(c, bias); c.err != nil {
		return queries, keys
	}
	c.backend.Gate(bias, bias, tensor.Tensor{}, meta.ActExp, 0)
	n := rows * b.heads
	c.copyRows(matrix(keys, n, wide).Columns(0, b.dim), matrix(k, n, b.dim))
	c.copyRows(matrix(keys, n, wide).Columns(b.dim, wide), matrix(bias, n, 1))
	n = rows * (q.Cols() / b.dim)
	c.copyRows(matrix(queries, n, wide).Columns(0, b.dim), matrix(q, n, b.dim))
	c.repeat(matrix(queries, n, wide).Columns(b.dim, wide), b.rows[:1])
	c.scale(matrix(queries, n, wide).Columns(b.dim, wide), 1/b.scale)
	if b.args.Count > 0 {
		index := c.cacheOf(b.spec.Layer)
		c.backend.StoreKV(index.KV, bias, tensor.Tensor{}, index.slots)
	}
	return queries, keys
}

// speed multiplies the steps of each head by its rate.
func (b *keyBias) speed(c *Context, bias tensor.Tensor) {
	if c.recording() {
		rates := c.arena.take(bias.Rows(), b.heads)
		if c.repeatVector(rates, b.rate); c.err == nil {
			c.backend.Gate(bias, bias, rates, meta.ActNone, 0)
		}
		return
	}
	rate := c.hostVectors(b.rate)
	for h := range rate {
		c.scale(bias.Columns(h, h+1), rate[h])
	}
}

// attend sets y to the attention of queries q over the keys that b selects, or over all keys if
// no row has more.
func (b *keyBias) attend(c *Context, y, q tensor.Tensor, cache layerCache, args backend.AttentionArgs) {
	longest := 0
	for i := range cache.spans {
		longest = max(longest, cache.spans[i].Start+cache.spans[i].Rows)
	}
	if b.args.Count == 0 || longest <= b.args.Count {
		c.backend.Attention(y, q, cache.KV, cache.spans, args)
		return
	}
	ops, ok := c.backend.(backend.Blocked)
	if !ok {
		c.fail("%s: attention to chosen keys does not run on this backend", b.path)
		return
	}
	mark := c.arena.used
	one, chosen := c.arena.take(q.Rows(), b.heads*b.heads), c.arena.take(q.Rows(), b.heads*b.args.Count)
	c.repeat(one, b.rows)
	index := c.cacheOf(b.spec.Layer)
	ops.ChooseBlocks(chosen, one, index.KV, index.spans, b.args)
	ops.AttentionBlocks(y, q, chosen, cache.KV, cache.spans, args, b.args)
	c.arena.used = mark
}

// scratch returns the scratch memory of b, which may be nil.
func (b *keyBias) scratch(rows int, s *meta.AttentionSpec) int {
	if b == nil {
		return 0
	}
	n := floats(rows, s.Heads*(b.dim+1)) + floats(rows, b.heads*(b.dim+1)) + floats(rows, b.heads)
	return n + floats(rows, b.heads*b.heads) + floats(rows, b.heads*b.args.Count)
}

// repeat sets all rows of dst to x.
func (c *Context) repeat(dst tensor.Tensor, x []float32) {
	if c.err != nil {
		return
	}
	rows := dst.Rows()
	c.copyRows(dst.Slice(0, 1), tensor.Floats(x, 1, len(x)))
	for n := 1; n < rows; n *= 2 {
		c.copyRows(dst.Slice(n, min(2*n, rows)), dst.Slice(0, min(n, rows-n)))
	}
}

// repeatVector sets all rows of dst to a vector. While recording, the vector is treated as a
// table of one row, so that it has a gradient.
func (c *Context) repeatVector(dst tensor.Tensor, p param) {
	if !c.recording() {
		c.repeat(dst, c.hostVectors(p))
		return
	}
	if t := c.vector(p); c.err == nil {
		t.Rank, t.Stride, t.Dims = 2, 0, [tensor.MaxRank]int{1, t.Elements()}
		c.backend.Embed(dst, backend.Matrix{Tensor: t}, make([]int32, dst.Rows()), 1)
	}
}

// hostVectors returns the values of vectors, one after another. They are valid until the next
// call.
func (c *Context) hostVectors(ps ...param) []float32 {
	host := c.scales[:0]
	for _, p := range ps {
		t := c.vector(p)
		if c.err != nil {
			return nil
		}
		from, n := len(host), t.Elements()
		host = slices.Grow(host, n)[:from+n]
		c.stored = slices.Grow(c.stored[:0], 4*n)[:4*n]
		if err := c.readVector(host[from:], t); err != nil {
			c.fail("%s: %w", p.path, err)
		}
	}
	c.scales = host
	return host
}
