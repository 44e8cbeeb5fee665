package nn

import (
	"slices"

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
	// padding is 1 + the id whose lookups have no gradient, or 0.
	padding int32
	number  int // index in Program.embeddings
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

// lookup computes dst[i] = scale · table[ids[i]]. An id outside the table fails the pass.
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

// lookupParts looks up rows of the model's table, which may be stored in several pieces.
func (r *embedding) lookupParts(c *Context, dst tensor.Tensor, ids []int32, scale float32) {
	parts := c.parts(r.weight, -1)
	if c.err != nil {
		return
	}
	if len(parts) == 1 {
		if table, ok := c.onePiece(r.weight, parts); ok {
			r.embed(c, dst, table, ids, scale)
		}
		return
	}
	begin := 0
	for begin < len(ids) && c.err == nil {
		p := r.partOf(c, parts, ids[begin])
		if p == nil {
			return
		}
		first := int32(p.Into.Begin)
		end := begin
		for c.looked = c.looked[:0]; end < len(ids) && int(ids[end]) >= p.Into.Begin && int(ids[end]) < p.Into.End; end++ {
			c.looked = append(c.looked, ids[end]-first)
		}
		c.backend.Embed(dst.Slice(begin, end), p.Matrix, c.looked, scale)
		begin = end
	}
}

// partOf returns the piece that holds row id. If there is none, the pass fails.
func (r *embedding) partOf(c *Context, parts []backend.Part, id int32) *backend.Part {
	i, _ := slices.BinarySearchFunc(parts, int(id), func(p backend.Part, id int) int {
		if p.Into.End <= id {
			return -1
		}
		return 1
	})
	if i == len(parts) || int(id) < parts[i].Into.Begin || parts[i].Rank != 2 || parts[i].OutRows() != parts[i].Into.End-parts[i].Into.Begin || parts[i].InCols() != r.dim {
		c.fail("%s: no piece of %d with row %d of %d columns", r.path, len(parts), id, r.dim)
		return nil
	}
	return &parts[i]
}
