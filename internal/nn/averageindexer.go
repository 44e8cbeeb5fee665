package nn

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// averageIndexer selects blocks of positions by the averages of their keys. Its layer of the
// cache holds the key of each token and, as the second vector of the last token of a block, the
// block's key. A block's key is computed from cached keys, so it does not depend on how a prompt
// is divided into passes.
type averageIndexer struct {
	spec         *meta.BlockIndexerSpec
	blocks       backend.BlockArgs
	index        backend.IndexArgs
	qk           *linear
	qNorm, kNorm *norm
	rope         int // rotates the key of a block by its first position
}

func (c *compiler) averageIndexer(n Node, a *attention, in int) (x *averageIndexer, err error) {
	s := a.spec.Blocks
	if s.Local != 0 || s.QK == "" || s.Q != "" || s.K != "" {
		return nil, at(n.Path, "averaged blocks, %d of them near, without one map of queries and keys", s.Local)
	}
	c.together("sparse attention")
	x = &averageIndexer{
		spec: s, blocks: backend.BlockArgs{Heads: 1, Dim: s.HeadDim, Size: s.Size, Count: s.Count, Tail: true},
		index: backend.IndexArgs{Heads: s.Heads, Dim: s.HeadDim, Count: s.Count, Scale: float32(math.Pow(float64(s.HeadDim), -0.5)), WeightScale: 1},
	}
	if x.qk, err = c.linearNamed(n, "queries and keys of the indexer", s.QK, in, (s.Heads+1)*s.HeadDim); err != nil {
		return nil, err
	}
	if x.qNorm, err = c.normNamed(n, "norm of the indexer's queries", s.QNorm, s.Heads*s.HeadDim); err != nil {
		return nil, err
	}
	if x.kNorm, err = c.normNamed(n, "norm of the indexer's blocks", s.KNorm, s.HeadDim); err != nil {
		return nil, err
	}
	if x.qNorm == nil || x.kNorm == nil {
		return nil, at(n.Path, "averaged blocks without norms of their keys and of queries")
	}
	x.kNorm.number = 0 // its rows are blocks, not rows of the pass, so adapters cannot replace it
	c.usedNext(x.qk, a.gate.of(), a.out)
	first := *a.spec.Rope
	first.Shift = s.Size - 1
	if x.rope, err = c.rope(n.Path, &first, s.HeadDim); err != nil {
		return nil, err
	}
	c.program.constants = max(c.program.constants, s.Heads)
	return x, c.cache(n.Path, s.Layer, kvcache.LayerShape{KWidth: s.HeadDim, VWidth: s.HeadDim, Heads: 1})
}

func (x *averageIndexer) args() (backend.BlockArgs, backend.IndexArgs) { return x.blocks, x.index }

func (x *averageIndexer) choose(c *Context, a *attention, chosen, hidden tensor.Tensor) {
	b, ok := c.backend.(backend.Averaged)
	if !ok {
		c.fail("%s: attention to blocks by their averages does not run on this backend", a.path)
	}
	if c.err != nil {
		return
	}
	defer c.arena.pause()()
	mark := c.arena.used
	rows, s := hidden.Rows(), x.spec
	both, blocks := c.arena.take(rows, x.qk.out), c.arena.take(rows, s.HeadDim)
	x.qk.forward(c, both, hidden)
	queries, keys := both.Columns(0, s.Heads*s.HeadDim), both.Columns(s.Heads*s.HeadDim, x.qk.out)
	x.qNorm.forward(c, queries, queries)
	if c.err == nil {
		index := c.cacheOf(s.Layer)
		c.rotate(a.rope, queries, s.HeadDim)
		c.backend.StoreKV(index.KV, keys, tensor.Tensor{}, index.slots)
		b.AverageKeys(blocks, index.KV, index.spans, s.Size)
		x.kNorm.forward(c, blocks, blocks)
		c.rotate(x.rope, blocks, s.HeadDim)
		second := index.KV
		second.K = second.V
		c.backend.StoreKV(second, blocks, tensor.Tensor{}, index.slots)
		ones := tensor.Floats(c.ones[:rows*s.Heads], rows, s.Heads)
		b.ChooseEntries(chosen, queries, ones, index.KV, index.spans, x.index, backend.EntryArgs{Rate: s.Size, Extra: s.HeadDim})
	}
	c.arena.used = mark
}

func (x *averageIndexer) scratch(rows int) int {
	return floats(rows, x.qk.out) + floats(rows, x.spec.HeadDim) + floats(rows, x.spec.Count)
}
