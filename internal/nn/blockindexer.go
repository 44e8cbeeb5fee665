package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A blockChooser is an indexer that selects blocks of positions.
type blockChooser interface {
	// choose sets chosen to the blocks that rows of a attend to. hidden is the input of a. The
	// selection has no gradient.
	choose(c *Context, a *attention, chosen, hidden tensor.Tensor)
	// args returns the definition of blocks, and how averages of them are selected.
	args() (backend.BlockArgs, backend.IndexArgs)
	scratch(rows int) int // includes chosen
}

// blockChooser compiles the indexer of a, whose spec names one.
func (c *compiler) blockChooser(n Node, a *attention, in int) (blockChooser, error) {
	s, m := a.spec.Blocks, a.spec
	if s.Heads < 1 || s.HeadDim < 1 || s.Size < 1 || s.Count < 1 || s.Local < 0 || s.Local > s.Count || m.Rope == nil || m.QueryRope != nil || m.Rope.Dim > s.HeadDim && s.Halves == nil || s.Averaged && s.Halves != nil {
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

// blockIndexer selects the blocks of positions to which attention applies, for each of its heads.
// Its keys are a layer of the KV cache, so they are evicted, reused and counted like the keys of
// attention.
type blockIndexer struct {
	spec         *meta.BlockIndexerSpec
	blocks       backend.BlockArgs
	q, k         *linear
	qNorm, kNorm *norm
	halves       []int // rope tables of both halves of heads; nil: they have the attention's
}

func (c *compiler) blockIndexer(n Node, a *attention, in int) (x *blockIndexer, err error) {
	s, m := a.spec.Blocks, a.spec
	if m.Heads%s.Heads != 0 {
		return nil, at(n.Path, "%d heads over an indexer of %d", m.Heads, s.Heads)
	}
	c.together("sparse attention")
	x = &blockIndexer{spec: s, blocks: backend.BlockArgs{Heads: s.Heads, Dim: s.HeadDim, Size: s.Size, Count: s.Count, Local: s.Local}}
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
	if s.Halves != nil {
		x.halves = make([]int, 2)
		for i := range x.halves {
			if x.halves[i], err = c.rope(n.Path, &s.Halves[i], s.HeadDim); err != nil {
				return nil, err
			}
		}
	}
	c.usedNext(x.q, x.k, a.gate.of(), a.out)
	return x, c.cache(n.Path, s.Layer, kvcache.LayerShape{KWidth: s.HeadDim, Heads: 1})
}

func (x *blockIndexer) choose(c *Context, a *attention, chosen, hidden tensor.Tensor) {
	defer c.arena.pause()()
	mark := c.arena.used
	rows := hidden.Rows()
	queries, keys := c.arena.take(rows, x.q.out), c.arena.take(rows, x.k.out)
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
		x.rotate(c, a.rope, queries)
		x.rotate(c, a.rope, keys)
		index := c.cacheOf(x.spec.Layer)
		c.backend.StoreKV(index.KV, keys, tensor.Tensor{}, index.slots)
		c.backend.(backend.Blocked).ChooseBlocks(chosen, queries, index.KV, index.spans, x.blocks)
	}
	c.arena.used = mark
}

// rotate rotates the heads of queries or keys. rope is the table of the attention.
func (x *blockIndexer) rotate(c *Context, rope int, of tensor.Tensor) {
	dim := x.spec.HeadDim
	if x.halves == nil {
		c.rotate(rope, of, dim)
		return
	}
	first := c.arena.take(of.Rows(), of.Cols())
	c.copyRows(first, of)
	c.rotate(x.halves[0], first, dim)
	c.rotate(x.halves[1], of, dim)
	for at := 0; at < of.Cols(); at += dim {
		c.copyRows(of.Columns(at, at+dim/2), first.Columns(at, at+dim/2))
	}
}

func (x *blockIndexer) args() (backend.BlockArgs, backend.IndexArgs) {
	return x.blocks, backend.IndexArgs{}
}

func (x *blockIndexer) scratch(rows int) int {
	n := floats(rows, x.q.out) + floats(rows, x.k.out)
	if x.halves != nil {
		n *= 2
	}
	return n + floats(rows, x.blocks.Heads*x.blocks.Count)
}
