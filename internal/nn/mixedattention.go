package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// mixedAttention is attention whose query and output projections are the experts of a MoE layer.
// The heads of the experts that the router selects for a token are adjacent: query head h·TopK +
// j is head h of the j-th selected expert. They share the keys and values of head h.
type mixedAttention struct {
	path  string
	spec  *meta.AttentionSpec
	moe   *moe
	kv    *linear
	rope  int // table, -1 if there is none
	width int // width of all keys, or values, or of the queries of an expert
}

func (c *compiler) mixedAttention(n Node, s *meta.AttentionSpec, in int) (*mixedAttention, error) {
	a := &mixedAttention{path: n.Path, spec: s, rope: -1, width: s.KVHeads * s.HeadDim}
	if s.KVHeads < 1 || s.HeadDim < 1 || s.ValueDim != s.HeadDim || s.Softcap != 0 || s.Sinks != "" || s.Chunk != 0 {
		return nil, at(n.Path, "a mixture of %d heads of %d and %d, with a softcap, sinks or chunks perhaps", s.KVHeads, s.HeadDim, s.ValueDim)
	}
	experts, err := c.child(n, "mixture of heads", s.Mixture.Experts)
	if err != nil {
		return nil, err
	}
	if a.moe, err = c.moe(experts, in); err != nil {
		return nil, err
	}
	if m := a.moe; !m.spec.Plain || !m.apart() || m.inner != a.width || m.shared != nil || m.latentDown != nil || m.spec.Identity > 0 || m.spec.ScaleInput || s.Heads != s.KVHeads*m.spec.TopK {
		return nil, at(experts.Path, "experts with %d channels and other parts than two maps each, for %d heads of %d", m.inner, s.Heads, s.HeadDim)
	}
	if a.kv, err = c.linearNamed(n, "keys and values", s.Mixture.KV, in, 2*a.width); err != nil {
		return nil, err
	}
	c.usedNext(a.moe.router)
	if s.Rope != nil {
		if a.rope, err = c.rope(n.Path, s.Rope, s.HeadDim); err != nil {
			return nil, err
		}
	}
	c.program.mixedHeads = max(c.program.mixedHeads, s.KVHeads)
	c.attends(backend.AttentionWork{Heads: s.Heads, KVHeads: s.KVHeads, Dim: s.HeadDim, ValueDim: s.HeadDim, Window: s.Window})
	return a, c.cache(n.Path, s.Layer, kvcache.LayerShape{KWidth: a.width, VWidth: a.width, Heads: s.KVHeads, Window: s.Window})
}

func (a *mixedAttention) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	s, rows := a.spec, x.Rows()
	chosen := rows * a.moe.spec.TopK
	kv, sorted := c.arena.take(rows, 2*a.width), c.arena.take(chosen, a.width)
	q, y := c.arena.take(rows, s.Heads*s.HeadDim), c.arena.take(rows, s.Heads*s.HeadDim)
	together := c.collect()
	a.kv.compute(together, kv, x, 0)
	a.moe.route(together, x)
	a.queries(together, sorted, x)
	if c.err == nil {
		r := &c.routing
		r.byHead(chosen, a.moe.spec.TopK, s.KVHeads)
		heads := chosen * s.KVHeads
		c.backend.Gather(matrix(q, heads, s.HeadDim), matrix(sorted, heads, s.HeadDim), r.toHeads[:heads])
		k, v := kv.Columns(0, a.width), kv.Columns(a.width, 2*a.width)
		c.rotate(a.rope, q, s.HeadDim)
		c.rotate(a.rope, k, s.HeadDim)
		cache := c.cacheOf(s.Layer)
		c.backend.StoreKV(cache.KV, k, v, cache.slots)
		c.backend.Attention(y, q, cache.KV, cache.spans, backend.AttentionArgs{
			Heads: s.Heads, KVHeads: s.KVHeads, Dim: s.HeadDim, ValueDim: s.HeadDim, Scale: s.Scale, Window: s.Window, Prompts: c.in.Prompts})
		c.backend.Gather(matrix(sorted, heads, s.HeadDim), matrix(y, heads, s.HeadDim), r.fromHeads[:heads])
		c.backend.Gather(dst, matrix(c.zero, 1, a.moe.width), c.nothing[:rows])
	}
	a.results(together, dst, sorted)
	c.arena.used = mark
}

// queries sets sorted to the queries of the selected experts, sorted by expert.
func (a *mixedAttention) queries(c scope, sorted, x tensor.Tensor) {
	a.lots(c, x.Rows(), func(at *lotMemory, lot, rows []int32, _ []float32) {
		at.in = c.arena.take(len(rows), a.moe.width)
		at.to.gate = sorted.Slice(at.first, at.first+len(rows))
		c.backend.Gather(at.in, x, rows)
		a.moe.wanted(c, a.moe.stack, lot, func(experts []int32) { a.moe.project(c, at, experts) })
	})
}

// results adds the selected experts' outputs for sorted to dst, by ascending expert.
func (a *mixedAttention) results(c scope, dst, sorted tensor.Tensor) {
	a.lots(c, dst.Rows(), func(at *lotMemory, lot, rows []int32, shares []float32) {
		at.y = c.arena.take(len(rows), a.moe.width)
		at.gated = sorted.Slice(at.first, at.first+len(rows))
		a.moe.wanted(c, a.moe.downStack, lot, func(experts []int32) { a.moe.downs(c, at, experts) })
		if c.err == nil {
			c.backend.ScatterAdd(dst, at.y, rows, shares)
		}
	})
}

// lots calls f for lots of the selected experts, with their rows and the rows' shares.
func (a *mixedAttention) lots(c scope, rows int, f func(at *lotMemory, lot, rows []int32, shares []float32)) {
	r := &c.routing
	for hit := r.hit; len(hit) > 0 && c.err == nil; {
		mark := c.arena.used
		lot := r.lot(hit, lotRows(rows, a.moe.spec.TopK))
		first, last := r.begin[lot[0]], r.begin[lot[len(lot)-1]+1]
		f(&lotMemory{routing: r, first: int(first)}, lot, r.rows[first:last], r.shares[first:last])
		hit = hit[len(lot):]
		c.arena.used = mark
	}
}

func (a *mixedAttention) scratch(rows int) int {
	chosen := rows * a.moe.spec.TopK
	return floats(rows, 2*a.width) + floats(chosen, a.width) + 2*floats(rows, a.spec.Heads*a.spec.HeadDim) +
		max(floats(rows, a.moe.choices()), floats(lotRows(rows, a.moe.spec.TopK), a.moe.width))
}

func (a *mixedAttention) cols() int { return a.moe.width }

// byHead computes for every query head of a token which head it is among the sorted rows, and the
// reverse. n is the number of choices; each sorted row has heads heads.
func (r *routing) byHead(n, topK, heads int) {
	for i, place := range r.places[:n] {
		token, j := int(place)/topK, int(place)%topK
		for h := range heads {
			at := (token*heads+h)*topK + j
			r.toHeads[at], r.fromHeads[i*heads+h] = int32(i*heads+h), int32(at)
		}
	}
}
