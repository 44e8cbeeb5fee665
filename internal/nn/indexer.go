package nn

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// indexer selects the positions to which latent attention applies. Its keys are the second vector
// of each token in the layer's cache, so they are evicted, reused and counted with the token's
// page.
type indexer struct {
	spec             *meta.IndexerSpec
	q, k, weights    *linear
	qNorm, kNorm     *norm
	qScale           *headScale // nil if there is none
	scale, headScale float32
	rotated          int
}

// indexer compiles the indexer of a. It returns nil if there is none.
func (c *compiler) indexer(n Node, a *latent, in int) (x *indexer, err error) {
	m := a.spec.MLA
	s := m.Indexer
	if m.Chosen > 0 || s != nil {
		c.together("sparse attention")
		if a.spec.Window != 0 || a.spec.Softcap != 0 {
			return nil, at(n.Path, "sparse attention with a window or capped scores")
		}
	}
	if s == nil {
		if m.Chosen > c.program.chosen {
			return nil, at(n.Path, "attention to %d chosen positions, of which no earlier layer chooses more than %d", m.Chosen, c.program.chosen)
		}
		c.program.choiceShared = c.program.choiceShared || m.Chosen > 0
		return nil, nil
	}
	if s.Heads < 1 || s.HeadDim < a.rotated || s.Count < 1 || m.Chosen != s.Count || s.Last && a.spec.Rope == nil {
		return nil, at(n.Path, "an indexer of %d heads of %d that chooses %d positions of %d", s.Heads, s.HeadDim, s.Count, m.Chosen)
	}
	x = &indexer{spec: s, rotated: a.rotated, scale: float32(math.Pow(float64(s.HeadDim), -0.5)), headScale: float32(math.Pow(float64(s.Heads), -0.5))}
	if err = c.indexerQueries(n, a, x, in); err != nil {
		return nil, err
	}
	if x.k, err = c.linearNamed(n, "keys of the indexer", s.K, in, s.HeadDim); err != nil {
		return nil, err
	}
	if x.kNorm, err = c.normNamed(n, "norm of the indexer's keys", s.KNorm, s.HeadDim); err != nil {
		return nil, err
	}
	if x.weights, err = c.linearNamed(n, "weights of the indexer", s.Weights, in, s.Heads); err != nil {
		return nil, err
	}
	c.usedNext(x.q, x.k, x.weights, a.up.both, a.up.k, a.up.v, a.gate.of(), a.out)
	c.program.chosen = max(c.program.chosen, s.Count)
	c.program.choosers = append(c.program.choosers, len(c.program.Units))
	if s.Last {
		c.program.heads = max(c.program.heads, s.Heads)
	}
	return x, nil
}

// indexerQueries compiles the projection to the queries of x.
func (c *compiler) indexerQueries(n Node, a *latent, x *indexer, in int) (err error) {
	if s := x.spec; a.qDown != nil {
		in = a.qDown.out
	} else if x.qNorm, err = c.normNamed(n, "norm of the indexer's operand", s.QNorm, in); err != nil {
		return err
	}
	if x.q, err = c.linearNamed(n, "queries of the indexer", x.spec.Q, in, x.spec.Heads*x.spec.HeadDim); err != nil {
		return err
	}
	x.qScale, err = c.headScale(n, x.spec.HeadScale, x.spec.Heads, x.spec.HeadDim)
	return err
}

// indexed returns the backend's operations for sparse attention. It fails the pass and returns
// nil if the backend has none.
func (c *Context) indexed(path string) backend.Indexed {
	b, ok := c.backend.(backend.Indexed)
	if !ok {
		c.fail("%s: sparse attention does not run on this backend", path)
	}
	if !ok || c.err != nil {
		return nil
	}
	return b
}

// choose stores the keys of hidden in the cache of a's layer, or in a layer of their own, and
// sets c.chosen. residual is the normalised compression of a's queries, or hidden.
func (x *indexer) choose(c *Context, a *latent, hidden, residual tensor.Tensor) {
	defer c.arena.pause()()
	mark := c.arena.used
	rows, s := hidden.Rows(), x.spec
	q, k, weights := c.arena.take(rows, s.Heads*s.HeadDim), c.arena.take(rows, s.HeadDim), c.arena.take(rows, s.Heads)
	if x.qNorm != nil {
		y := c.arena.take(rows, residual.Cols())
		x.qNorm.forward(c, y, residual)
		residual = y
	}
	together := c.collect()
	x.q.compute(together, q, residual, 0)
	x.k.compute(together, k, hidden, 0)
	x.weights.compute(together, weights, hidden, 0)
	c.compute()
	if x.kNorm != nil {
		x.kNorm.forward(c, k, k)
	}
	x.qScale.apply(c, q)
	if b := c.indexed(a.path); b != nil {
		x.rotate(c, a, q, k)
		keys := x.keys(c, a)
		c.backend.StoreKV(keys.KV, k, tensor.Tensor{}, keys.slots)
		b.Choose(c.chosen.Columns(0, s.Count), q, weights, keys.KV, keys.spans, backend.IndexArgs{
			Heads: s.Heads, Dim: s.HeadDim, Count: s.Count, Scale: x.scale, WeightScale: x.headScale,
		})
	}
	c.arena.used = mark
}

// rotate applies the rope of a, if there is one, to queries and keys.
func (x *indexer) rotate(c *Context, a *latent, q, k tensor.Tensor) {
	s := x.spec
	switch {
	case a.rope < 0:
	case s.Last:
		c.turnLast(a.rope, q, s.Heads, s.HeadDim)
		c.turnLast(a.rope, k, 1, s.HeadDim)
	default:
		t := &c.ropes[a.rope]
		c.backend.Rope(q, s.HeadDim, t.cos, t.sin, s.Interleaved)
		c.backend.Rope(k, s.HeadDim, t.cos, t.sin, s.Interleaved)
	}
}

// keys returns the cache that holds the keys of x.
func (x *indexer) keys(c *Context, a *latent) layerCache {
	if a.spec.Shared {
		return c.cacheOf(x.spec.Layer)
	}
	keys := c.cacheOf(a.spec.Layer)
	keys.K = keys.V
	return keys
}

func (x *indexer) scratch(rows int) int {
	if x == nil {
		return 0
	}
	n := floats(rows, x.spec.Heads*x.spec.HeadDim) + floats(rows, x.spec.HeadDim) + floats(rows, x.spec.Heads)
	if x.qNorm != nil {
		n += floats(rows, x.q.in)
	}
	if x.spec.Last {
		return n + max(floats(rows, x.spec.Heads*x.rotated), x.qScale.scratch(rows))
	}
	return n + x.qScale.scratch(rows)
}
