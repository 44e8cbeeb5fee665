package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// pool computes entries that each summarise several tokens.
type pool struct {
	path     string
	spec     *meta.PoolSpec
	args     backend.PoolArgs
	kv, gate *linear
	bias     param
	norm     *norm
	rope     int // rotates an entry by the position of its first token
}

func (c *compiler) pool(n Node, s *meta.PoolSpec, in int) (p *pool, err error) {
	if s.Rate < 1 || s.Dim < 1 || s.Rope == nil {
		return nil, at(n.Path, "entries of %d channels of %d tokens", s.Dim, s.Rate)
	}
	p = &pool{path: n.Path, spec: s, args: backend.PoolArgs{Rate: s.Rate, Dim: s.Dim, Overlap: s.Overlap}}
	width := p.args.Series() * s.Dim
	if p.kv, err = c.linearNamed(n, "values of entries", s.KV, in, width); err != nil {
		return nil, err
	}
	if p.gate, err = c.linearNamed(n, "gates of entries", s.Gate, in, width); err != nil {
		return nil, err
	}
	holder, err := c.child(n, "parts of entries", s.In)
	if err != nil {
		return nil, err
	}
	c.program.asked.taps = max(c.program.asked.taps, 2*p.args.Series()*p.args.Kept())
	c.widens(s.Rate * width)
	if p.bias, err = c.param(holder, s.Bias, s.Rate, width); err != nil {
		return nil, err
	}
	if p.norm, err = c.normNamed(n, "norm of entries", s.Norm, s.Dim); err != nil {
		return nil, err
	}
	p.norm.number = 0 // its rows are entries, not rows of the pass, so adapters cannot replace it
	first := *s.Rope
	first.Shift = s.Rate - 1
	if p.rope, err = c.rope(n.Path, &first, s.Dim); err != nil {
		return nil, err
	}
	return p, c.state(n.Path, s.State, p.args.State())
}

// forward sets the rows of dst at which an entry ends to the entry.
func (p *pool) forward(c *Context, b backend.Compressed, dst, x tensor.Tensor, spans []backend.Span) {
	mark := c.arena.used
	width := p.args.Series() * p.args.Dim
	both := c.arena.take(x.Rows(), 2*width)
	together := c.collect()
	p.kv.compute(together, both.Columns(0, width), x, 0)
	p.gate.compute(together, both.Columns(width, 2*width), x, 0)
	c.compute()
	bias := c.vector(p.bias)
	if c.err == nil {
		b.Pool(dst, both, bias, c.states(p.spec.State, 0), spans, p.args)
		p.norm.forward(c, dst, dst)
		c.turnLast(p.rope, dst, 1, p.args.Dim)
	}
	c.arena.used = mark
}

// constant is forward without gradients, for entries by which others are selected.
func (p *pool) constant(c *Context, b backend.Compressed, dst, x tensor.Tensor, spans []backend.Span) {
	defer c.arena.pause()()
	p.forward(c, b, dst, x, spans)
}

func (p *pool) scratch(rows int) int { return floats(rows, 2*p.args.Series()*p.args.Dim) }

// entryIndexer selects the entries to which compressed attention applies.
type entryIndexer struct {
	spec             *meta.EntryIndexerSpec
	pool             *pool
	q, weights       *linear
	scale, headScale float32
}

// choose returns the entries to which each row of a's attention applies, for rows that have more
// than the indexer's count. The next selection of the pass reuses the memory.
func (x *entryIndexer) choose(c *Context, b backend.Compressed, a *compressed, o attended, cache layerCache, at backend.EntryArgs) tensor.Tensor {
	defer c.arena.pause()()
	mark := c.arena.used
	rows, s := o.x.Rows(), x.spec
	q, weights := c.arena.take(rows, s.Heads*s.HeadDim), c.arena.take(rows, s.Heads)
	together := c.collect()
	x.q.compute(together, q, o.residual, 0)
	x.weights.compute(together, weights, o.x, 0)
	c.compute()
	c.turnLast(a.rope, q, s.Heads, s.HeadDim)
	chosen := c.chosen.Columns(0, s.Count)
	if c.err == nil {
		b.ChooseEntries(chosen, q, weights, cache.KV, cache.spans, backend.IndexArgs{
			Heads: s.Heads, Dim: s.HeadDim, Count: s.Count, Scale: x.scale, WeightScale: x.headScale,
		}, at)
	}
	c.arena.used = mark
	return chosen
}
