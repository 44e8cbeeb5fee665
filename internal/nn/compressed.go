package nn

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// compressed is attention over a window and over entries that each summarise several tokens. The
// cache holds one vector per token, which is both key and value of all heads. An entry is a
// second vector, at the last of the tokens that it summarises, so entries are reused, counted and
// evicted with their pages. The tokens of an entry that is not complete are the layer's state.
type compressed struct {
	path              string
	spec              *meta.AttentionSpec
	qDown, qUp        *linear
	qNorm, qHeadNorm  *norm
	kv                *linear
	kvNorm            *norm
	pool              *pool // nil if there is only the window
	indexer           *entryIndexer
	sinks             param
	outDown, out      *linear
	rope, back        int // tables that rotate heads, and rotate them back
	turned, groupedIn int // channels that rope rotates, and those of a group of heads
}

func (c *compiler) compressed(n Node, s *meta.AttentionSpec, in int) (a *compressed, err error) {
	m := s.Compressed
	width := s.Heads * s.HeadDim
	if s.Heads < 1 || s.KVHeads != 1 || s.HeadDim < 1 || s.ValueDim != s.HeadDim || s.Window < 1 || s.Rope == nil || m.Groups < 1 || s.Heads%m.Groups != 0 || s.Softcap != 0 || s.Chunk != 0 {
		return nil, at(n.Path, "compressed attention of %d heads of %d and %d over %d, in %d groups, with a window of %d", s.Heads, s.HeadDim, s.ValueDim, s.KVHeads, m.Groups, s.Window)
	}
	c.together("compressed attention")
	a = &compressed{path: n.Path, spec: s, turned: s.Rope.Dim, groupedIn: width / m.Groups}
	if err := c.compressedQueries(n, a, in); err != nil {
		return nil, err
	}
	if a.kv, err = c.linearNamed(n, "keys", m.KV, in, s.HeadDim); err != nil {
		return nil, err
	}
	c.usedNext(a.qDown, a.qUp)
	if a.kvNorm, err = c.normNamed(n, "norm of the keys", m.KVNorm, s.HeadDim); err != nil {
		return nil, err
	}
	if a.sinks, err = c.param(n, s.Sinks, s.Heads); err != nil {
		return nil, err
	}
	if a.rope, err = c.rope(n.Path, s.Rope, s.HeadDim); err != nil {
		return nil, err
	}
	back := *s.Rope
	back.Backwards = true
	if a.back, err = c.rope(n.Path, &back, s.HeadDim); err != nil {
		return nil, err
	}
	shape := kvcache.LayerShape{KWidth: s.HeadDim, Heads: 1, Window: s.Window}
	asks := backend.AttentionWork{Heads: s.Heads, KVHeads: 1, Dim: s.HeadDim, ValueDim: s.HeadDim, Window: s.Window}
	if m.Pool != nil {
		shape.Window = 0
		if shape.VWidth, err = c.entries(n, a, in); err != nil {
			return nil, err
		}
		asks.Rate = m.Pool.Rate
	}
	if x := a.indexer; x != nil {
		asks.Count, asks.Index = x.spec.Count, backend.IndexArgs{Heads: x.spec.Heads, Dim: x.spec.HeadDim, Count: x.spec.Count}
	}
	c.attends(asks)
	if err := c.compressedOut(n, a); err != nil {
		return nil, err
	}
	c.program.heads = max(c.program.heads, s.Heads)
	return a, c.cache(n.Path, s.Layer, shape)
}

func (c *compiler) compressedQueries(n Node, a *compressed, in int) (err error) {
	m, s := a.spec.Compressed, a.spec
	if a.qDown, err = c.linearNamed(n, "compression of the queries", m.QDown, in, 0); err != nil {
		return err
	}
	if a.qNorm, err = c.normNamed(n, "norm of the queries", m.QNorm, a.qDown.out); err != nil {
		return err
	}
	if a.qUp, err = c.linearNamed(n, "queries", m.QUp, a.qDown.out, s.Heads*s.HeadDim); err != nil {
		return err
	}
	a.qHeadNorm, err = c.normNamed(n, "norm of the heads' queries", m.QHeadNorm, s.Heads*s.HeadDim)
	return err
}

// compressedOut compiles the output projection: a matrix for each group of heads, then one for
// all.
func (c *compiler) compressedOut(n Node, a *compressed) (err error) {
	m := a.spec.Compressed
	if a.outDown, err = c.linearNamed(n, "map of groups of heads", m.OutDown, a.groupedIn, 0); err != nil {
		return err
	}
	a.outDown.partial = true
	if a.outDown.out%m.Groups != 0 || a.outDown.bias.Param != nil || a.outDown.transposed {
		return at(a.outDown.path, "a map of width %d for %d groups that has a bias or is transposed", a.outDown.out, m.Groups)
	}
	a.out, err = c.linearNamed(n, "output", a.spec.Out, a.outDown.out, 0)
	return err
}

// entries compiles the pools of a. It returns the total width of their entries.
func (c *compiler) entries(n Node, a *compressed, in int) (width int, err error) {
	m := a.spec.Compressed
	if m.Pool.Dim != a.spec.HeadDim {
		return 0, at(n.Path, "entries of %d channels beside keys of %d", m.Pool.Dim, a.spec.HeadDim)
	}
	if a.pool, err = c.pool(n, m.Pool, in); err != nil || m.Indexer == nil {
		return m.Pool.Dim, err
	}
	s := m.Indexer
	if s.Heads < 1 || s.HeadDim < a.turned || s.Count < 1 || s.Pool == nil || s.Pool.Dim != s.HeadDim || s.Pool.Rate != m.Pool.Rate {
		return 0, at(n.Path, "an indexer of %d heads of %d that chooses %d entries", s.Heads, s.HeadDim, s.Count)
	}
	x := &entryIndexer{spec: s, scale: float32(math.Pow(float64(s.HeadDim), -0.5)), headScale: float32(math.Pow(float64(s.Heads), -0.5))}
	if x.pool, err = c.pool(n, s.Pool, in); err != nil {
		return 0, err
	}
	if x.q, err = c.linearNamed(n, "queries of the indexer", s.Q, a.qDown.out, s.Heads*s.HeadDim); err != nil {
		return 0, err
	}
	if x.weights, err = c.linearNamed(n, "weights of the indexer", s.Weights, in, s.Heads); err != nil {
		return 0, err
	}
	c.program.chosen, c.program.heads = max(c.program.chosen, s.Count), max(c.program.heads, s.Heads)
	a.indexer = x
	return m.Pool.Dim + s.HeadDim, nil
}

func (a *compressed) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	rows, s := x.Rows(), a.spec
	kv, residual, q := c.arena.take(rows, s.HeadDim), c.arena.take(rows, a.qDown.out), c.arena.take(rows, s.Heads*s.HeadDim)
	together := c.collect()
	a.kv.compute(together, kv, x, 0)
	a.qDown.compute(together, residual, x, 0)
	c.compute()
	a.qNorm.forward(c, residual, residual)
	a.qUp.forward(c, q, residual)
	a.qHeadNorm.forward(c, q, q)
	a.kvNorm.forward(c, kv, kv)
	sinks := c.vector(a.sinks)
	if b := c.compressedOps(a.path); b != nil {
		c.turnLast(a.rope, q, s.Heads, s.HeadDim)
		c.turnLast(a.rope, kv, 1, s.HeadDim)
		y := c.arena.take(rows, s.Heads*s.HeadDim)
		a.attend(c, b, attended{y: y, q: q, kv: kv, x: x, residual: residual, sinks: sinks})
		c.turnLast(a.back, y, s.Heads, s.HeadDim)
		grouped := c.arena.take(rows, a.outDown.out)
		together = c.collect()
		each := a.outDown.out / s.Compressed.Groups
		a.outDown.groups(together, each, func(g, begin, end int, w backend.Matrix) {
			together.product(backend.Product{Dst: grouped.Columns(g*each+begin, g*each+end), X: y.Columns(g*a.groupedIn, (g+1)*a.groupedIn), W: w})
		})
		c.compute()
		a.out.forward(c, dst, grouped)
	}
	c.arena.used = mark
}

// attended holds the operands of attention and the memory of its result.
type attended struct{ y, q, kv, x, residual, sinks tensor.Tensor }

// attend stores the rows' keys, and their entries if the layer has some, and computes the rows'
// attention.
func (a *compressed) attend(c *Context, b backend.Compressed, o attended) {
	s := a.spec
	cache := c.cacheOf(s.Layer)
	args := backend.AttentionArgs{
		Heads: s.Heads, KVHeads: 1, Dim: s.HeadDim, ValueDim: s.HeadDim,
		Scale: s.Scale, Window: s.Window, Sinks: o.sinks, Prompts: c.in.Prompts,
	}
	if a.pool == nil {
		keys := latentKeys(cache.KV)
		c.backend.StoreKV(keys, o.kv, tensor.Tensor{}, cache.slots)
		c.backend.Attention(o.y, o.q, keys, cache.spans, args)
		return
	}
	at := backend.EntryArgs{Rate: a.pool.args.Rate, First: s.HeadDim}
	if a.indexer != nil {
		at.Extra = a.indexer.spec.HeadDim
	}
	mark := c.arena.used
	entries := c.arena.take(o.x.Rows(), at.First+at.Extra)
	a.pool.forward(c, b, entries.Columns(0, at.First), o.x, cache.spans)
	if a.indexer != nil {
		a.indexer.pool.constant(c, b, entries.Columns(at.First, at.First+at.Extra), o.x, cache.spans)
	}
	if c.err != nil {
		return
	}
	c.backend.StoreKV(cache.KV, o.kv, entries, cache.slots)
	var chosen tensor.Tensor
	if a.indexer != nil {
		chosen = a.indexer.choose(c, b, a, o, cache, at)
	}
	if c.err == nil {
		b.AttentionEntries(o.y, o.q, chosen, cache.KV, cache.spans, args, at)
	}
	c.arena.used = mark
}

// turnLast rotates the last channels of each head of x. If there are several heads, x has memory
// of its own.
func (c *Context) turnLast(table int, x tensor.Tensor, heads, dim int) {
	if c.err != nil {
		return
	}
	t := &c.ropes[table]
	turned := t.spec.Dim
	if heads == 1 {
		c.backend.Rope(x.Columns(dim-turned, dim), turned, t.cos, t.sin, t.spec.Interleaved)
		return
	}
	mark := c.arena.used
	rows := x.Rows()
	copied := c.arena.take(rows, heads*turned)
	each, last := matrix(copied, rows*heads, turned), matrix(x, rows*heads, dim).Columns(dim-turned, dim)
	c.copyRows(each, last)
	c.backend.Rope(copied, turned, t.cos, t.sin, t.spec.Interleaved)
	c.copyRows(last, each)
	c.arena.used = mark
}

// compressedOps returns the backend's operations for compressed attention. It fails the pass and
// returns nil if the backend has none.
func (c *Context) compressedOps(path string) backend.Compressed {
	b, ok := c.backend.(backend.Compressed)
	if !ok {
		c.fail("%s: compressed attention does not run on this backend", path)
	}
	if !ok || c.err != nil {
		return nil
	}
	return b
}

func (a *compressed) scratch(rows int) int {
	s := a.spec
	queries := floats(rows, s.Heads*s.HeadDim)
	n := floats(rows, s.HeadDim) + floats(rows, a.qDown.out) + 2*queries
	within := max(floats(rows, s.Heads*a.turned), floats(rows, a.outDown.out))
	if a.pool == nil {
		return n + within
	}
	width, more := s.HeadDim, a.pool.scratch(rows)
	if x := a.indexer; x != nil {
		width += x.spec.HeadDim
		more = max(more, x.pool.scratch(rows), floats(rows, x.spec.Heads*x.spec.HeadDim)+floats(rows, x.spec.Heads)+floats(rows, x.spec.Heads*a.turned))
	}
	return n + max(within, floats(rows, width)+more)
}

func (a *compressed) cols() int { return a.out.cols() }
