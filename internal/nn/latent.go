package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// latent is multi-head latent attention (MLA). The cache holds one compressed vector c per token;
// each head's key and value are linear projections of it. Instead of expanding the cache, the key
// projection U is applied to the queries, q·(U·c) = (Uᵀ·q)·c, and the value projection to the
// attention output. All heads share the keys: the compressed vector followed by the rotary part.
// The values are the compressed vectors, at the start of each key.
type latent struct {
	path          string
	spec          *meta.AttentionSpec
	qDown, qUp    *linear // qDown and qNorm may be nil
	qNorm         *norm
	qScale        *headScale // nil if there is none
	kvDown        *linear    // nil, like kvNorm, if keys are those of an earlier layer
	up            expansion
	kvNorm        *norm
	ropeNorm      *norm // of the rotary part of keys; may be nil
	out           *linear
	rope, growth  int       // tables, -1 if there is none
	gate          *headGate // nil if there is none
	sinks         param
	indexer       *indexer // nil if there is none
	nope, rotated int      // widths of the two parts of a query head
	rank          int
}

func (c *compiler) latent(n Node, s *meta.AttentionSpec, in int) (*latent, error) {
	m := s.MLA
	if m.LoraRank < 1 || m.RopeDim < 0 || m.NopeDim < 1 || s.Heads < 1 || s.ValueDim < 1 || s.HeadDim != m.NopeDim+m.RopeDim || s.Shared && m.KRopeNorm != "" {
		return nil, at(n.Path, "latent attention of %d heads of %d = %d + %d and %d, rank %d",
			s.Heads, s.HeadDim, m.NopeDim, m.RopeDim, s.ValueDim, m.LoraRank)
	}
	if s.Rope != nil && s.Rope.Dim != m.RopeDim {
		return nil, at(n.Path, "latent attention wants rope over %d dimensions", m.RopeDim)
	}
	a := &latent{path: n.Path, spec: s, rope: -1, growth: -1, nope: m.NopeDim, rotated: m.RopeDim, rank: m.LoraRank}
	err := c.latentQueries(n, a, in)
	if err != nil {
		return nil, err
	}
	if err = c.latentKeys(n, a, in); err != nil {
		return nil, err
	}
	if err = c.expansion(n, a); err != nil {
		return nil, err
	}
	if s.Sinks != "" {
		if a.sinks, err = c.param(n, s.Sinks, s.Heads); err != nil {
			return nil, err
		}
	}
	if a.gate, err = c.headGate(n, s, in); err != nil {
		return nil, err
	}
	if a.out, err = c.linearNamed(n, "output", s.Out, s.Heads*s.ValueDim, 0); err != nil {
		return nil, err
	}
	if err = c.latentRopes(n, a); err != nil {
		return nil, err
	}
	c.program.heads = max(c.program.heads, s.Heads)
	if a.up.both != nil {
		c.program.asked.maps = append(c.program.asked.maps, mapped{linear: a.up.both, step: 1, in: a.nope, out: a.rank, reversed: true})
	}
	if a.indexer, err = c.indexer(n, a, in); err != nil {
		return nil, err
	}
	asks := backend.AttentionWork{Heads: s.Heads, KVHeads: 1, Dim: a.rank + a.rotated, ValueDim: a.rank, Window: s.Window, Count: m.Chosen}
	if x := a.indexer; x != nil {
		asks.Index = backend.IndexArgs{Heads: x.spec.Heads, Dim: x.spec.HeadDim, Count: x.spec.Count}
	}
	c.attends(asks)
	return a, c.latentCache(n.Path, a)
}

// latentKeys compiles the projection to the keys of a, if they are its own.
func (c *compiler) latentKeys(n Node, a *latent, in int) (err error) {
	m := a.spec.MLA
	if a.spec.Shared {
		return nil
	}
	if a.kvDown, err = c.linearNamed(n, "compression", m.KVDown, in, a.rank+a.rotated); err != nil {
		return err
	}
	c.usedNext(a.qDown, a.qUp)
	if a.kvNorm, err = c.normNamed(n, "norm of the compression", m.KVNorm, a.rank); err != nil {
		return err
	}
	a.ropeNorm, err = c.normNamed(n, "norm of the keys' rotary part", m.KRopeNorm, a.rotated)
	return err
}

// latentCache assigns layers of the KV cache to a. The keys of an indexer are the second vectors
// of a's own tokens, or a layer of their own.
func (c *compiler) latentCache(path string, a *latent) error {
	s := a.spec
	shape := kvcache.LayerShape{KWidth: a.rank + a.rotated, Heads: 1, Window: s.Window}
	if !s.Shared {
		if a.indexer != nil {
			shape.VWidth = a.indexer.spec.HeadDim
		}
		return c.cache(path, s.Layer, shape)
	}
	if s.Layer >= 0 && s.Layer < len(c.program.layers) {
		shape.VWidth = c.program.layers[s.Layer].VWidth
	}
	if err := c.shared(path, s.Layer, shape); err != nil || a.indexer == nil {
		return err
	}
	x := a.indexer.spec
	return c.cache(path, x.Layer, kvcache.LayerShape{KWidth: x.HeadDim, Heads: 1})
}

func (c *compiler) latentRopes(n Node, a *latent) (err error) {
	if r := a.spec.Rope; r != nil {
		if a.rope, err = c.rope(n.Path, r, a.rotated); err != nil {
			return err
		}
	}
	if r := a.spec.MLA.QueryGrowth; r != nil {
		a.growth, err = c.rope(n.Path, r, a.spec.HeadDim)
	}
	return err
}

func (c *compiler) latentQueries(n Node, a *latent, in int) (err error) {
	m := a.spec.MLA
	if m.QDown != "" {
		if a.qDown, err = c.linearNamed(n, "compression of the queries", m.QDown, in, 0); err != nil {
			return err
		}
		in = a.qDown.out
	}
	if a.spec.Gated && !m.QConcat || m.QConcat && (m.QDown == "" || m.QNorm == "") {
		return at(n.Path, "gates of heads, or a compression before its norm, in queries of another form than both together")
	}
	if a.qNorm, err = c.normNamed(n, "norm of the queries", m.QNorm, in); err != nil {
		return err
	}
	if m.QConcat {
		in *= 2
	}
	if a.qUp, err = c.linearNamed(n, "queries", m.QUp, in, a.spec.Heads*(a.spec.HeadDim+a.gateDim())); err != nil {
		return err
	}
	a.qScale, err = c.headScale(n, m.HeadScale, a.spec.Heads, a.spec.HeadDim)
	return err
}

// gateDim returns the width of a head's gate, which follows its query; 0 if there is none.
func (a *latent) gateDim() int {
	if a.spec.Gated {
		return a.spec.ValueDim
	}
	return 0
}

func (a *latent) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	rows, s := x.Rows(), a.spec
	var key tensor.Tensor
	if width := a.keyWidth(); width > 0 {
		key = c.arena.take(rows, width)
	}
	q, gates := a.queries(c, key, x)
	c.scale(q, orOne(s.MLA.QueryScale))
	c.rotate(a.growth, q, s.HeadDim)
	a.qScale.apply(c, q)
	cache := c.cacheOf(s.Layer)
	cache.KV = latentKeys(cache.KV)
	a.store(c, cache, key)

	a.magnifyQueries(c, q)
	sinks := c.vector(a.sinks)
	absorbed, up := a.absorb(c, q)
	if c.err != nil {
		return
	}
	y := c.arena.take(rows, s.Heads*a.rank)
	a.attend(c, y, absorbed, sinks, cache)
	values := c.arena.take(rows, s.Heads*s.ValueDim)
	together := c.collect()
	a.up.values(together, a, up, func(h, begin, end int, w backend.Matrix) {
		first := h * s.ValueDim
		together.product(backend.Product{Dst: values.Columns(first+begin, first+end), X: y.Columns(h*a.rank, (h+1)*a.rank), W: w})
	})
	c.compute()
	a.adaptValues(c, values, y)
	a.magnifyValues(c, values)
	if a.gate != nil {
		values = a.gate.apply(c, x, values)
	}
	if s.Gated && c.err == nil {
		c.backend.Gate(gates, gates, values, meta.ActSigmoid, 0)
		values = gates
	}
	a.out.forward(c, dst, values)
	c.arena.used = mark
}

// keyWidth returns the width of the keys that a computes, or 0 if they are those of an earlier
// layer.
func (a *latent) keyWidth() int {
	if a.spec.Shared {
		return 0
	}
	return a.rank + a.rotated
}

// store normalises, rotates and caches the keys that a computes.
func (a *latent) store(c *Context, cache layerCache, key tensor.Tensor) {
	if a.spec.Shared {
		return
	}
	if a.kvNorm != nil {
		compressed := key.Columns(0, a.rank)
		a.kvNorm.forward(c, compressed, compressed)
		c.scale(compressed, orOne(a.spec.MLA.KVScale))
	}
	turned := key.Columns(a.rank, a.rank+a.rotated)
	if a.ropeNorm != nil {
		a.ropeNorm.forward(c, turned, turned)
	}
	if a.rotate(c, turned); c.err == nil {
		c.backend.StoreKV(cache.KV, key, tensor.Tensor{}, cache.slots)
	}
}

// rotate applies rope to the heads of x.
func (a *latent) rotate(c *Context, x tensor.Tensor) {
	if c.err != nil {
		return
	}
	c.rotate(a.rope, x, a.rotated)
}

// latentKeys returns the cached keys of latent attention as keys and values. The values are the
// first part of the keys.
func latentKeys(kv backend.KV) backend.KV {
	kv.V = kv.K
	return kv
}

// attend sets y to the attention of queries q over latent keys: all of them, or those that an
// indexer has selected.
func (a *latent) attend(c *Context, y, q, sinks tensor.Tensor, cache layerCache) {
	s := a.spec
	args := backend.AttentionArgs{
		Heads: s.Heads, KVHeads: 1, Dim: a.rank + a.rotated, ValueDim: a.rank,
		Scale: s.Scale, Window: s.Window, Softcap: s.Softcap, Sinks: sinks, Prompts: c.in.Prompts,
	}
	if s.MLA.Chosen == 0 {
		c.backend.Attention(y, q, cache.KV, cache.spans, args)
	} else if b := c.indexed(a.path); b != nil {
		b.AttentionChosen(y, q, c.chosen.Columns(0, s.MLA.Chosen), cache.KV, cache.spans, args)
	}
}

// queries computes the query heads before rotation, with their gates. The same operation computes
// compressed, the compression of x.
func (a *latent) queries(c *Context, compressed, x tensor.Tensor) (q, gates tensor.Tensor) {
	hidden, rows, heads := x, x.Rows(), a.spec.Heads
	q = c.arena.take(rows, heads*a.spec.HeadDim)
	if a.spec.Gated {
		gates = c.arena.take(rows, heads*a.gateDim())
	}
	mark := c.arena.used
	together := c.collect()
	if a.kvDown != nil {
		a.kvDown.compute(together, compressed, x, 0)
	}
	var both tensor.Tensor // the result of qNorm and its input
	if a.qDown != nil {
		y := c.arena.take(rows, a.qDown.out*a.queryVectors())
		if a.spec.MLA.QConcat {
			both, y = y, y.Columns(a.qDown.out, 2*a.qDown.out)
		}
		a.qDown.compute(together, y, x, 0)
		x = y
	}
	c.compute()
	if !both.IsZero() {
		y := both.Columns(0, a.qDown.out)
		a.qNorm.forward(c, y, x)
		x = y
	} else if a.qNorm != nil {
		y := c.arena.take(rows, a.qNorm.cols())
		a.qNorm.forward(c, y, x)
		x = y
	}
	if a.spec.Gated {
		a.gatedQueries(c, q, gates, both)
	} else {
		a.qUp.forward(c, q, x)
	}
	if a.indexer != nil {
		a.indexer.choose(c, a, hidden, x)
	}
	c.arena.used = mark
	return q, gates
}

// queryVectors returns the number of adjacent vectors with the width of the queries' compression.
func (a *latent) queryVectors() int {
	if a.spec.MLA.QConcat {
		return 2
	}
	return 1
}

// gatedQueries splits the result of qUp for x into q and gates.
func (a *latent) gatedQueries(c *Context, q, gates, x tensor.Tensor) {
	mark := c.arena.used
	dim, gate, n := a.spec.HeadDim, a.gateDim(), x.Rows()*a.spec.Heads
	both := c.arena.take(x.Rows(), a.qUp.out)
	if a.qUp.forward(c, both, x); c.err == nil {
		both = matrix(both, n, dim+gate)
		c.copyRows(matrix(q, n, dim), both.Columns(0, dim))
		c.copyRows(matrix(gates, n, gate), both.Columns(dim, dim+gate))
	}
	c.arena.used = mark
}

// absorb projects each query head to the key space of the cache: its first part with the
// transposed key projection, its second part with rope. up is the key projection if it comes as
// one matrix.
func (a *latent) absorb(c *Context, q tensor.Tensor) (absorbed tensor.Tensor, up backend.Matrix) {
	rows, heads, dim, width := q.Rows(), a.spec.Heads, a.spec.HeadDim, a.rank+a.rotated
	absorbed = c.arena.take(rows, heads*width)
	together := c.collect()
	up = a.up.keys(together, a, func(h, begin, end int, w backend.Matrix) {
		together.product(backend.Product{Dst: absorbed.Columns(h*width+begin, h*width+end), X: q.Columns(h*dim, h*dim+a.nope), W: w})
	})
	c.compute()
	if c.err != nil {
		return absorbed, up
	}
	a.adaptQueries(c, absorbed, q)
	if a.rotated == 0 {
		return absorbed, up
	}
	mark := c.arena.used
	turned := c.arena.take(rows, heads*a.rotated)
	each := matrix(turned, rows*heads, a.rotated)
	c.copyRows(each, matrix(q, rows*heads, dim).Columns(a.nope, dim))
	a.rotate(c, turned)
	c.copyRows(matrix(absorbed, rows*heads, width).Columns(a.rank, width), each)
	c.arena.used = mark
	return absorbed, up
}

func (a *latent) scratch(rows int) int {
	s := a.spec
	down := 0
	if a.qDown != nil {
		down += floats(rows, a.qDown.out*a.queryVectors())
	}
	if a.qNorm != nil && !s.MLA.QConcat {
		down += floats(rows, a.qNorm.cols())
	}
	if s.Gated {
		down += max(floats(rows, a.qUp.out), a.indexer.scratch(rows))
	} else {
		down += a.indexer.scratch(rows)
	}
	after := floats(rows, s.Heads*(a.rank+a.rotated)) +
		max(floats(rows, s.Heads*a.rotated), floats(rows, s.Heads*a.rank)+floats(rows, s.Heads*s.ValueDim)+a.gate.scratch(rows))
	return floats(rows, a.keyWidth()) + floats(rows, s.Heads*s.HeadDim) + floats(rows, s.Heads*a.gateDim()) + max(down, a.qScale.scratch(rows), after)
}

func (a *latent) cols() int { return a.out.cols() }
