package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// embedding is a table of vectors.
type embedding struct {
	path   string
	weight param
	rows   int
	dim    int
	// padding is 1 + the row whose lookups get no gradient, or 0.
	padding int32
	number  int // in Program.embeddings
}

func (c *compiler) embedding(n Node) (*embedding, error) {
	s, err := spec[meta.EmbeddingSpec](n, meta.KindEmbedding)
	if err != nil {
		return nil, err
	}
	if s.Rows < 1 || s.Dim < 1 {
		return nil, at(n.Path, "an embedding of %d rows of %d", s.Rows, s.Dim)
	}
	r := &embedding{path: n.Path, rows: s.Rows, dim: s.Dim, padding: int32(s.Padding), number: len(c.program.embeddings)}
	c.program.embeddings = append(c.program.embeddings, r)
	r.weight, err = c.param(n, "weight", s.Rows, s.Dim)
	return r, err
}

// lookup computes dst[i] = scale · table[ids[i]]. Ids outside the table are an error.
func (r *embedding) lookup(c *Context, dst tensor.Tensor, ids []int32, scale float32, what string) {
	for i, id := range ids {
		if id < 0 || int(id) >= r.rows {
			c.fail("%s: %s %d in row %d; the table has %d", r.path, what, id, i, r.rows)
			return
		}
	}
	r.lookupEach(c, dst, ids, scale)
}

// embed looks up rows of a table.
func (r *embedding) embed(c *Context, dst tensor.Tensor, table backend.Matrix, ids []int32, scale float32) {
	switch {
	case r.padding > 0 && c.recording():
		c.arena.recorder.EmbedPadded(dst, table, ids, scale, r.padding-1)
	default:
		c.backend.Embed(dst, table, ids, scale)
	}
}
