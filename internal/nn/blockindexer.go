package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A blockChooser is an indexer of blocks of positions.
type blockChooser interface {
	// attend sets y to the attention of a's queries q to the blocks that it chooses. hidden is a's operand.
	attend(c *Context, a *attention, y, q, hidden tensor.Tensor, args backend.AttentionArgs)
	// asks adds to w what it asks of the backend.
	asks(w *backend.AttentionWork)
	scratch(rows int) int
}

// blockChooser compiles the indexer of a, whose spec names one.
func (c *compiler) blockChooser(n Node, a *attention, in int) (blockChooser, error) {
	s, m := a.spec.Blocks, a.spec
	if s.Heads < 1 || s.HeadDim < 1 || s.Size < 1 || s.Count < 1 || s.Local < 0 || s.Local > s.Count || m.Rope == nil || m.QueryRope != nil || m.Rope.Dim > s.HeadDim {
		return nil, at(n.Path, "an indexer of %d heads of %d that chooses %d blocks of %d positions, %d of them near", s.Heads, s.HeadDim, s.Count, s.Size, s.Local)
	}
	if m.Window != 0 || m.Chunk != 0 || m.Softcap != 0 || m.Sinks != "" || len(m.Slopes) > 0 || m.Shared || m.NormLast || m.Clip != 0 {
		return nil, at(n.Path, "attention to blocks with a window, sinks, biases or capped scores")
	}
	if s.Averaged {
		return c.averageIndexer(n, a, in)
	}
	return c.blockIndexer(n, a, in)
}

// blockIndexer chooses the blocks of positions that attention sees, for each of its heads. Its keys are a layer of
// the cache, so they are evicted, reused and counted as keys of attention are.
type blockIndexer struct {
	spec         *meta.BlockIndexerSpec
	args         backend.BlockArgs
	q, k         *linear
	qNorm, kNorm *norm
}

func (c *compiler) blockIndexer(n Node, a *attention, in int) (x *blockIndexer, err error) {
	s, m := a.spec.Blocks, a.spec
	if m.Heads%s.Heads != 0 {
		return nil, at(n.Path, "%d heads over an indexer of %d", m.Heads, s.Heads)
	}
	c.together("sparse attention")
	x = &blockIndexer{spec: s, args: backend.BlockArgs{Heads: s.Heads, Dim: s.HeadDim, Size: s.Size, Count: s.Count, Local: s.Local}}
	if x.q, err = c.linearNamed(n, "queries of the indexer", s.Q, in, s.Heads*s.HeadDim); err != nil {
		return nil, err
	}
	if x.k, err = c.linearNamed(n, "keys of the indexer", s.K, in, s.HeadDim); err != nil {
		return nil, err
	}
	if x.qNorm, err = c.normNamed(n, "norm of the indexer's queries", s.QNorm, s.Heads*s.HeadDim); err != nil {
		return nil, err
	}
	if x.kNorm, err = c.normNamed(n, "norm of the indexer's keys", s.KNorm, s.HeadDim); err != nil {
		return nil, err
	}
	c.usedNext(x.q, x.k, a.gate.of(), a.out)
	return x, c.cache(n.Path, s.Layer, kvcache.LayerShape{KWidth: s.HeadDim, Heads: 1})
}

func (x *blockIndexer) attend(c *Context, a *attention, y, q, hidden tensor.Tensor, args backend.AttentionArgs) {
	b, ok := c.backend.(backend.Blocked)
	if !ok {
		c.fail("%s: attention to blocks does not run on this backend", a.path)
	}
	if c.err != nil {
		return
	}
	mark := c.arena.used
	rows := hidden.Rows()
	queries, keys := c.arena.take(rows, x.q.out), c.arena.take(rows, x.k.out)
	chosen := c.arena.take(rows, x.args.Heads*x.args.Count)
	together := c.collect()
	x.q.compute(together, queries, hidden, 0)
	x.k.compute(together, keys, hidden, 0)
	c.compute()
	if x.qNorm != nil {
		x.qNorm.forward(c, queries, queries)
	}
	if x.kNorm != nil {
		x.kNorm.forward(c, keys, keys)
	}
	if c.err == nil {
		c.rotate(a.rope, queries, x.spec.HeadDim)
		c.rotate(a.rope, keys, x.spec.HeadDim)
		index, cache := c.cacheOf(x.spec.Layer), c.cacheOf(a.spec.Layer)
		c.backend.StoreKV(index.KV, keys, tensor.Tensor{}, index.slots)
		b.ChooseBlocks(chosen, queries, index.KV, index.spans, x.args)
		b.AttentionBlocks(y, q, chosen, cache.KV, cache.spans, args, x.args)
	}
	c.arena.used = mark
}

func (x *blockIndexer) asks(w *backend.AttentionWork) { w.Blocks = x.args }

func (x *blockIndexer) scratch(rows int) int {
	return floats(rows, x.q.out) + floats(rows, x.k.out) + floats(rows, x.args.Heads*x.args.Count)
}
