package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// attention is causal self-attention over the KV cache of its layer.
type attention struct {
	path         string
	spec         *meta.AttentionSpec
	q, k, v      *linear // if not fused
	fused        *linear
	out          *linear
	adapters     [3]rule // added to q, k and v; nil if there is none
	qNorm, kNorm *norm
	vNorm        *norm
	outNorm      *norm
	gate         *headGate     // nil if there is none
	indexer      blockChooser  // nil if there is none
	difference   *difference   // nil if there is none
	bias         *keyBias      // nil if there is none
	relative     *relative     // nil if there is none
	kConv, vConv *residualConv // of keys and values; nil if there is none
	mix          *keyMix       // nil for none
	keyScale     *keyScale     // nil for none
	channels     *channelScale // of queries behind rope; nil for none
	sinks        param
	rope, qRope  int // tables of keys and of queries, -1 if there is none
	qw, kw, vw   int // widths of queries, keys and values
}

func (c *compiler) attention(n Node, in int) (rule, error) {
	s, err := spec[meta.AttentionSpec](n, meta.KindAttention)
	if err != nil {
		return nil, err
	}
	switch {
	case s.MLA != nil:
		return c.latent(n, s, in)
	case s.Compressed != nil:
		return c.compressed(n, s, in)
	case s.Mixture != nil:
		return c.mixedAttention(n, s, in)
	}
	if s.Heads < 1 || s.KVHeads < 1 || s.HeadDim < 1 || s.ValueDim < 1 || s.Heads%s.KVHeads != 0 {
		return nil, at(n.Path, "%d heads over %d of keys and values, of sizes %d and %d", s.Heads, s.KVHeads, s.HeadDim, s.ValueDim)
	}
	a := &attention{
		path: n.Path, spec: s, rope: -1, qRope: -1,
		qw: s.Heads * s.HeadDim, kw: s.KVHeads * s.HeadDim, vw: s.KVHeads * s.ValueDim,
	}
	if err := c.projections(n, a, in); err != nil {
		return nil, err
	}
	if err := c.attentionNorms(n, a); err != nil {
		return nil, err
	}
	if err := c.scores(n, a); err != nil {
		return nil, err
	}
	if err := c.ropes(n, a); err != nil {
		return nil, err
	}
	if err := c.extensions(n, a, in); err != nil {
		return nil, err
	}
	asks := backend.AttentionWork{Heads: s.Heads, KVHeads: s.KVHeads, Dim: a.keyDim(), ValueDim: a.valueDim(), Window: s.Window}
	if s.Blocks != nil {
		if a.indexer, err = c.blockChooser(n, a, in); err != nil {
			return nil, err
		}
		asks.Blocks, asks.Index = a.indexer.args()
	}
	c.attends(asks)
	window := s.Window
	if window == 0 {
		window = s.Chunk // a chunk has at most this many tokens before a token
	}
	shape := kvcache.LayerShape{KWidth: s.KVHeads * a.keyDim(), VWidth: s.KVHeads * a.valueDim(), Heads: s.KVHeads, Window: window}
	if s.Shared {
		return a, c.shared(n.Path, s.Layer, shape)
	}
	return a, c.cache(n.Path, s.Layer, shape)
}

// attentionNorms compiles the norms of queries, keys, values and outputs.
func (c *compiler) attentionNorms(n Node, a *attention) (err error) {
	s := a.spec
	for _, p := range [...]struct {
		to         **norm
		role, name string
		width      int
	}{
		{&a.qNorm, "queries", s.QNorm, a.qw}, {&a.kNorm, "keys", s.KNorm, a.kw},
		{&a.vNorm, "values", s.VNorm, a.vw}, {&a.outNorm, "outputs", s.OutNorm, s.Heads * s.ValueDim},
	} {
		if *p.to, err = c.normNamed(n, "norm of the "+p.role, p.name, p.width); err != nil {
			return err
		}
	}
	return nil
}

// extensions compiles the operations on queries, keys and values before attention, and on its
// result.
func (c *compiler) extensions(n Node, a *attention, in int) (err error) {
	s := a.spec
	if a.difference, err = c.difference(n, a); err != nil {
		return err
	}
	if a.bias, err = c.keyBias(n, a); err != nil {
		return err
	}
	if a.relative, err = c.relative(n, a, in); err != nil {
		return err
	}
	if (s.KConv != nil || s.VConv != nil) && (s.Shared || s.KeysToo) {
		return at(n.Path, "convolutions of keys and values that are those of an earlier layer or the same")
	}
	if a.kConv, err = c.residualConv(n, s.KConv, a.kw); err != nil {
		return err
	}
	if a.vConv, err = c.residualConv(n, s.VConv, a.vw); err != nil {
		return err
	}
	if a.keyScale, err = c.keyScale(n, s); err != nil {
		return err
	}
	if a.channels, err = c.channelScale(n, s.QueryChannels, a.qw); err != nil {
		return err
	}
	a.mix, err = c.keyMix(n, a, in)
	return err
}

// extend returns queries, keys and values in the form in which they are cached.
func (a *attention) extend(c *Context, q, k, v tensor.Tensor) (queries, keys, values tensor.Tensor) {
	switch {
	case a.difference != nil:
		v = a.difference.pairs(c, v)
	case a.bias != nil:
		q, k = a.bias.extend(c, q, k, v)
	}
	return q, k, v
}

// keyDim returns the size of a key head in the cache.
func (a *attention) keyDim() int {
	if a.bias != nil {
		return a.spec.HeadDim + 1
	}
	return a.spec.HeadDim
}

// valueDim returns the size of a value head in the cache.
func (a *attention) valueDim() int {
	if a.difference != nil {
		return 2 * a.spec.ValueDim
	}
	return a.spec.ValueDim
}

// ropes compiles the rotary tables of keys and queries.
func (c *compiler) ropes(n Node, a *attention) (err error) {
	s := a.spec
	if s.Rope != nil {
		if a.rope, err = c.rope(n.Path, s.Rope, s.HeadDim); err != nil {
			return err
		}
		a.qRope = a.rope
	}
	if s.QueryRope != nil {
		a.qRope, err = c.rope(n.Path, s.QueryRope, s.HeadDim)
	}
	return err
}

// scores compiles the terms that are added to the scores: sinks, and biases by distance.
func (c *compiler) scores(n Node, a *attention) (err error) {
	s := a.spec
	if s.Sinks != "" {
		if a.sinks, err = c.param(n, s.Sinks, s.Heads); err != nil {
			return err
		}
	}
	if count := len(s.Slopes); count > 0 && count != s.Heads {
		return at(n.Path, "%d slopes for %d heads", count, s.Heads)
	}
	if s.RoundedSlopes {
		if len(s.Slopes) == 0 || s.Window > 0 || s.Chunk > 0 {
			return at(n.Path, "%d rounded slopes in a window of %d and chunks of %d", len(s.Slopes), s.Window, s.Chunk)
		}
	}
	if s.Clip > 0 {
		if s.NormLast || s.Shared {
			return at(n.Path, "clamped queries, keys and values with norms behind rope or of an earlier layer")
		}
	}
	return nil
}

// projections compiles the projections to queries, keys and values, and the output projection.
func (c *compiler) projections(n Node, a *attention, in int) (err error) {
	s := a.spec
	if a.out, err = c.linearNamed(n, "output", s.Out, s.Heads*s.ValueDim, 0); err != nil {
		return err
	}
	if s.OutBias != "" {
		if a.out.bias, err = c.param(n, s.OutBias, a.out.out); err != nil {
			return err
		}
	}
	defer func() { c.usedNext(a.gate.of(), a.out) }()
	if a.gate, err = c.headGate(n, s, in); err != nil {
		return err
	}
	if s.Gated && (s.Fused != "" || s.ValueDim != s.HeadDim) {
		return at(n.Path, "gates of queries in a fused projection or of another size than values")
	}
	if s.Fused != "" {
		a.fused, err = c.linearNamed(n, "fused projection", s.Fused, in, a.qw+a.kw+a.vw)
		switch s.FusedOrder {
		case meta.FusedPerHead:
			c.program.heads = max(c.program.heads, s.KVHeads)
		case meta.FusedQVKInShards:
			if s.Shards < 1 || a.qw != a.kw || a.qw != a.vw || a.qw%s.Shards != 0 {
				return at(n.Path, "%d shards of queries, keys and values of widths %d, %d and %d", s.Shards, a.qw, a.kw, a.vw)
			}
			c.program.heads = max(c.program.heads, s.Shards)
		}
		return err
	}
	queries := a.qw
	if s.Gated {
		queries = 2 * a.qw
		c.program.heads = max(c.program.heads, s.Heads)
	}
	if a.q, err = c.linearNamed(n, "queries", s.Q, in, queries); err != nil {
		return err
	}
	if s.Shared {
		return nil
	}
	if a.k, err = c.linearNamed(n, "keys", s.K, in, a.kw); err != nil {
		return err
	}
	if s.KeysToo {
		if a.kw != a.vw {
			return at(n.Path, "values of width %d that are keys of width %d", a.vw, a.kw)
		}
		return nil
	}
	values := a.vw
	if s.Mix != nil {
		values /= 2 // the others are those of the token before
	}
	if a.v, err = c.linearNamed(n, "values", s.V, in, values); err != nil {
		return err
	}
	return c.attentionAdapters(n, a, in, queries)
}

// attentionAdapters compiles what is added to queries, keys and values.
func (c *compiler) attentionAdapters(n Node, a *attention, in, queries int) (err error) {
	for i, name := range [...]string{a.spec.QAdapter, a.spec.KAdapter, a.spec.VAdapter} {
		if a.adapters[i], err = c.adapter(n, name, in, [...]int{queries, a.kw, a.vw}[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *attention) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := a.spec, x.Rows()
	q, k, v := a.project(c, x)
	a.kConv.apply(c, k)
	a.vConv.apply(c, v)
	var gate tensor.Tensor
	if s.Gated {
		q, gate = a.splitGates(c, q)
	}
	if !s.NormLast {
		a.normalise(c, q, k)
	}
	if a.vNorm != nil && c.err == nil {
		a.vNorm.forward(c, v, v)
	}
	if s.ValueScale != 0 {
		c.scale(v, s.ValueScale)
	}
	sinks := c.vector(a.sinks)
	if c.err != nil {
		return
	}
	if s.Clip > 0 {
		for _, t := range []tensor.Tensor{q, k, v} {
			c.backend.Gate(t, t, tensor.Tensor{}, meta.ActClamp, s.Clip)
		}
	}
	c.rotate(a.qRope, q, s.HeadDim)
	a.channels.apply(c, q)
	if !s.Shared {
		c.rotate(a.rope, k, s.HeadDim)
	}
	if s.NormLast {
		a.normalise(c, q, k)
	}
	q, k, v = a.extend(c, q, k, v)
	cache := c.cacheOf(s.Layer)
	if !s.Shared {
		c.backend.StoreKV(cache.KV, k, v, cache.slots)
	}
	y := c.arena.take(rows, s.Heads*s.ValueDim)
	a.attend(c, y, q, x, sinks)
	if s.Gated {
		c.backend.Gate(gate, gate, y, meta.ActSigmoid, 0)
		y = gate
	}
	if a.gate != nil {
		y = a.gate.apply(c, x, y)
	}
	if a.outNorm != nil && c.err == nil {
		a.outNorm.forward(c, y, y)
	}
	a.out.forward(c, dst, y)
	c.arena.used = mark
}

// attend sets y to the attention of queries q over the cache. x is the input of a.
func (a *attention) attend(c *Context, y, q, x, sinks tensor.Tensor) {
	s := a.spec
	cache := c.cacheOf(s.Layer)
	args := backend.AttentionArgs{
		Heads: s.Heads, KVHeads: s.KVHeads, Dim: a.keyDim(), ValueDim: a.valueDim(),
		Scale: s.Scale, Window: s.Window, Chunk: s.Chunk, Softcap: s.Softcap, Slopes: s.Slopes,
		RoundedSlopes: s.RoundedSlopes, Sinks: sinks, Prompts: c.in.Prompts, Relative: a.relative.of(c, x),
	}
	if c.err != nil {
		return
	}
	switch {
	case a.indexer != nil:
		a.attendBlocks(c, y, q, x, args)
	case a.bias != nil:
		a.bias.attend(c, y, q, cache, args)
	case a.difference != nil:
		both := c.arena.take(y.Rows(), 2*y.Cols())
		c.backend.Attention(both, q, cache.KV, cache.spans, args)
		a.difference.subtract(c, y, both)
	default:
		c.backend.Attention(y, q, cache.KV, cache.spans, args)
	}
}

// attendBlocks sets y to the attention of q over the blocks of the cache that a's indexer
// selects.
func (a *attention) attendBlocks(c *Context, y, q, x tensor.Tensor, args backend.AttentionArgs) {
	b, ok := c.backend.(backend.Blocked)
	if !ok {
		c.fail("%s: attention to blocks does not run on this backend", a.path)
	}
	if c.err != nil {
		return
	}
	mark := c.arena.used
	blocks, _ := a.indexer.args()
	chosen := c.arena.take(x.Rows(), blocks.Heads*blocks.Count)
	if a.indexer.choose(c, a, chosen, x); c.err == nil {
		cache := c.cacheOf(a.spec.Layer)
		b.AttentionBlocks(y, q, chosen, cache.KV, cache.spans, args, blocks)
	}
	c.arena.used = mark
}

// normalise applies the norms of queries and keys.
func (a *attention) normalise(c *Context, q, k tensor.Tensor) {
	if a.qNorm != nil {
		a.qNorm.forward(c, q, q)
	}
	if a.kNorm != nil {
		a.kNorm.forward(c, k, k)
	}
	a.keyScale.apply(c, k)
}

// splitGates separates the query heads from the gates that follow them.
func (a *attention) splitGates(c *Context, both tensor.Tensor) (q, gate tensor.Tensor) {
	rows, dim := both.Rows(), a.spec.HeadDim
	q, gate = c.arena.take(rows, a.qw), c.arena.take(rows, a.qw)
	if c.err == nil {
		n := rows * a.spec.Heads
		both = matrix(both, n, 2*dim)
		c.copyRows(matrix(q, n, dim), both.Columns(0, dim))
		c.copyRows(matrix(gate, n, dim), both.Columns(dim, 2*dim))
	}
	return q, gate
}

// project computes queries, keys and values.
func (a *attention) project(c *Context, x tensor.Tensor) (q, k, v tensor.Tensor) {
	rows := x.Rows()
	if a.mix != nil {
		return a.mix.project(c, a, x)
	}
	if a.fused == nil {
		q, k, v = c.arena.take(rows, a.q.out), c.arena.passing(rows, a.kw), c.arena.passing(rows, a.vw)
		together := c.collect()
		a.q.compute(together, q, x, 0)
		if a.k != nil {
			a.k.compute(together, k, x, 0)
		}
		if a.v != nil {
			a.v.compute(together, v, x, 0)
		}
		c.compute()
		for i, to := range [...]tensor.Tensor{q, k, v} {
			c.addRule(a.adapters[i], to, x)
		}
		if a.spec.KeysToo && c.err == nil {
			c.copyRows(v, k)
		}
		return q, k, v
	}
	all := c.arena.take(rows, a.qw+a.kw+a.vw)
	a.fused.forward(c, all, x)
	if a.spec.FusedOrder == meta.FusedQKV {
		return all.Columns(0, a.qw), all.Columns(a.qw, a.qw+a.kw), all.Columns(a.qw+a.kw, a.qw+a.kw+a.vw)
	}
	q, k, v = c.arena.take(rows, a.qw), c.arena.take(rows, a.kw), c.arena.take(rows, a.vw)
	a.unfuse(c, all, q, k, v)
	return q, k, v
}

// unfuse splits a fused projection whose outputs are ordered by key head or by shard. With one
// row for each token and key head or shard, queries, keys and values are ranges of columns.
func (a *attention) unfuse(c *Context, all, q, k, v tensor.Tensor) {
	if c.err != nil {
		return
	}
	s := a.spec
	if s.FusedOrder == meta.FusedQVKInShards {
		n, part := all.Rows()*s.Shards, a.qw/s.Shards
		all = matrix(all, n, 3*part)
		for i, to := range []tensor.Tensor{q, v, k} {
			c.copyRows(matrix(to, n, part), all.Columns(i*part, (i+1)*part))
		}
		return
	}
	n, dim := all.Rows()*s.KVHeads, s.HeadDim
	queries := s.Heads / s.KVHeads * dim
	all = matrix(all, n, queries+dim+s.ValueDim)
	c.copyRows(matrix(q, n, queries), all.Columns(0, queries))
	c.copyRows(matrix(k, n, dim), all.Columns(queries, queries+dim))
	c.copyRows(matrix(v, n, s.ValueDim), all.Columns(queries+dim, queries+dim+s.ValueDim))
}

func (a *attention) scratch(rows int) int {
	choice := 0
	if a.indexer != nil {
		choice = a.indexer.scratch(rows)
	}
	n := floats(rows, a.spec.Heads*a.spec.ValueDim) + max(a.gate.scratch(rows), choice) + a.difference.scratch(rows, a.spec) + a.bias.scratch(rows, a.spec) + a.relative.scratch(rows) + max(a.kConv.scratch(rows), a.vConv.scratch(rows)) +
		max(a.mix.scratch(rows), a.keyScale.scratch(rows, a.spec), a.channels.scratch(rows))
	if a.spec.Gated {
		n += 3 * floats(rows, a.qw)
	}
	if a.fused != nil {
		n += floats(rows, a.qw+a.kw+a.vw)
	}
	if a.fused == nil || a.spec.FusedOrder != meta.FusedQKV {
		n += floats(rows, a.qw) + floats(rows, a.kw) + floats(rows, a.vw)
	}
	for _, r := range a.adapters {
		n = max(n, floats(rows, a.qw)+floats(rows, a.kw)+floats(rows, a.vw)+addedScratch(r, rows))
	}
	return n
}

func (a *attention) cols() int { return a.out.cols() }
