package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// parts returns the pieces of a parameter, or of one expert's slab. The pass fails if they are not loaded.
func (c *Context) parts(p param, expert int) []backend.Part {
	if c.err != nil {
		return nil
	}
	parts := c.weights.Parts(p.Param, expert)
	if len(parts) == 0 {
		if err := c.weights.Err(); err != nil {
			c.fail("%s: %w", p.path, err)
			return nil
		}
		c.fail("%s: its values are not loaded", p.path)
	}
	return parts
}

// onePiece returns the matrix in parts, which must be a single piece with the shape of p.
func (c *Context) onePiece(p param, parts []backend.Part) (backend.Matrix, bool) {
	if m := parts[0].Matrix; len(parts) == 1 && m.Rank == 2 && m.OutRows() == p.Shape[0] && m.InCols() == p.Shape[1] {
		return m, true
	}
	c.fail("%s: %d pieces, the first of shape %v, wanted one of %v", p.path, len(parts), parts[0].Shape(), p.Shape)
	return backend.Matrix{}, false
}

// vector returns a one-dimensional parameter, or the elements of a larger one in order. It
// returns a zero tensor if p is missing.
func (c *Context) vector(p param) tensor.Tensor {
	if p.Param == nil {
		return tensor.Tensor{}
	}
	parts := c.parts(p, -1)
	if c.err != nil {
		return tensor.Tensor{}
	}
	m := parts[0].Matrix
	if t := m.Tensor; len(parts) == 1 && slices.Equal(t.Dims[:t.Rank], p.Shape) {
		if t.Rank == 1 {
			return t
		}
		if t, ok := flat(m); ok {
			return t
		}
	}
	c.fail("%s: %d pieces, the first of shape %v, wanted one of %v", p.path, len(parts), parts[0].Shape(), p.Shape)
	return tensor.Tensor{}
}

// flat returns a matrix without gaps as a vector.
func flat(m backend.Matrix) (tensor.Tensor, bool) {
	t := m.Tensor
	if m.Transposed || m.Quant != nil || t.RowStride()*t.Rows() != t.Elements() {
		return t, false
	}
	t.Dims[0], t.Rank, t.Stride = t.Elements(), 1, 0
	return t, true
}
