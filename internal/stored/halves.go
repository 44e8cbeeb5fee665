package stored

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/meta"
)

// CanHalve reports whether [Piece.Half] can separate the halves of p: it is stored as values, in one tensor.
func CanHalve(p *meta.Param) bool {
	return len(p.Shape) == 2 && len(p.Sources) == 1 && !p.Sources[0].Transposed && p.Sources[0].Quant == nil
}

// Half returns one half of groups [begin, end), as a matrix of its own. Its range is these rows as lines. It reports
// false if p is not stored as values.
func (p *Piece) Half(h backend.Halves, second bool, begin, end int) (Piece, bool) {
	m := &p.Part.Matrix
	if m.Rank != 2 || m.Transposed || m.RowStep > 1 || m.Quant != nil || begin < 0 || begin >= end || end*h.Group > m.Dims[0] || len(p.Ranges) != 1 || p.Ranges[0].Lines > 0 {
		return Piece{}, false
	}
	row := p.Size / int64(m.Dims[0])
	if row*int64(m.Dims[0]) != p.Size {
		return Piece{}, false
	}
	first, count := h.Rows(second)
	out := Piece{Part: p.Part}
	out.Part.Dims[0], out.Part.Into = (end-begin)*count, meta.RowRange{}
	r := p.Ranges[0]
	r.Begin += int64(begin*h.Group+first) * row
	r.Lines, r.Pitch = end-begin, int64(h.Group)*row
	r.Size = int64(r.Lines) * int64(count) * row
	out.Ranges, out.Size = []Range{r}, r.Size
	return out, true
}
