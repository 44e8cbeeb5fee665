package nn

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// keyScale multiplies key heads by numbers, see [meta.AttentionSpec].
type keyScale struct {
	of   param
	dim  int
	ones []float32
}

// keyScale compiles the numbers of key heads, or returns nil for none.
func (c *compiler) keyScale(n Node, s *meta.AttentionSpec) (*keyScale, error) {
	if s.KeyScale == "" {
		return nil, nil
	}
	last := strings.LastIndexByte(s.KeyScale, '.')
	child, err := c.child(n, "numbers of key heads", s.KeyScale[:max(last, 0)])
	if err != nil {
		return nil, err
	}
	if s.NormLast || s.Shared {
		return nil, at(n.Path, "numbers of key heads with norms behind rope or keys of an earlier layer")
	}
	r := &keyScale{dim: s.HeadDim, ones: slices.Repeat([]float32{1}, s.HeadDim)}
	c.spreads(s.KVHeads, s.HeadDim)
	r.of, err = c.param(child, s.KeyScale[last+1:], s.KVHeads)
	return r, err
}

// apply multiplies keys. r may be nil.
func (r *keyScale) apply(c *Context, k tensor.Tensor) {
	if r == nil {
		return
	}
	mark := c.arena.used
	byHead, wide := c.arena.take(k.Rows(), k.Cols()/r.dim), c.arena.take(k.Rows(), k.Cols())
	if c.repeatVector(byHead, r.of); c.err == nil {
		c.spread(wide, byHead, r.ones)
		c.backend.Gate(k, k, wide, meta.ActNone, 0)
	}
	c.arena.used = mark
}

// scratch is the memory of r, which may be nil.
func (r *keyScale) scratch(rows int, s *meta.AttentionSpec) int {
	if r == nil {
		return 0
	}
	return floats(rows, s.KVHeads) + floats(rows, s.KVHeads*s.HeadDim)
}
