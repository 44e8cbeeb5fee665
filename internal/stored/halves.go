package stored

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/meta"
)

// CanHalveTiles reports whether [Piece.Half] can separate the halves of a converted matrix, whose rows are interleaved.
func CanHalveTiles(h backend.RowGroups) bool {
	return h.First%interleaved == 0 && h.Size%interleaved == 0
}

// CanHalve reports whether [Piece.Half] can separate the halves of p: one source, in rows of which no two halves share
// scales.
func CanHalve(p *meta.Param, h backend.RowGroups) bool {
	if len(p.Shape) != 2 || len(p.Sources) != 1 || p.Sources[0].Transposed {
		return false
	}
	q := p.Sources[0].Quant
	return q == nil || q.Index == "" && apart(q, h)
}

// apart reports whether halves of rows in a format have scales of their own.
func apart(q *meta.Quant, h backend.RowGroups) bool {
	row, unit := q.Format.Row(), RowUnit(q)
	return row.Layout != meta.InputsFirst && !row.Codes.Flat && h.First%unit == 0 && h.Size%unit == 0
}

// Half returns one half of groups [begin, end), as a matrix of its own. Its ranges are these rows and their scales as
// lines. It reports false if p does not have them as rows or tiles of rows.
func (p *Piece) Half(h backend.RowGroups, second bool, begin, end int) (Piece, bool) {
	m := &p.Part.Matrix
	if m.Rank != 2 || m.Transposed || m.RowStep > 1 || begin < 0 || begin >= end || m.Dims[0]%h.Size != 0 || end*h.Size > m.Dims[0] {
		return Piece{}, false
	}
	groups, lines := m.Dims[0]/h.Size, end-begin
	first, count := h.Rows(second)
	out := Piece{Part: p.NewPart()}
	out.Part.Dims[0], out.Part.Into = lines*count, meta.RowRange{}
	if m.Quant != nil && m.Quant.Height > 0 {
		out.Part.Quant.Height = out.Part.Dims[0]
		if m.Quant.Height != m.Dims[0] || !CanHalveTiles(h) {
			return Piece{}, false
		}
	}
	if m.Quant == nil || m.Quant.Height > 0 {
		return out, len(p.Ranges) == 1 && out.addLines(p.Ranges[0], line{h.Size, first, count}, groups, begin, lines)
	}
	q := out.Part.Quant
	if !q.Index.IsZero() || !apart(q.Quant, h) {
		return Piece{}, false
	}
	total, group := entries(q, m.Dims[0], m.Dims[1]), entries(q, h.Size, m.Dims[1])
	before, those := entries(q, first, m.Dims[1]), entries(q, count, m.Dims[1])
	k := 0
	for i, r := range p.Ranges {
		for ; k > 0 && beside(q)[k-1].Rank == 0; k++ { // the format has no such tensor
		}
		n := those[k] * lines
		if k > 0 && total[k] == 1 { // one scale for all rows
			n, out.Ranges, out.Size = 1, append(out.Ranges, r), out.Size+r.Size
		} else if !out.addLines(r, line{group[k], before[k], those[k]}, groups, begin, lines) {
			return Piece{}, false
		}
		if i > 0 {
			*beside(q)[k-1] = View(beside(q)[k-1].DType, []int{n})
		}
		k++
	}
	return out, true
}

// A line is entries [first, first+count) of each all entries, one group of rows.
type line struct{ all, first, count int }

// addLines adds the lines of groups [begin, begin+lines) of r, which has so many groups. It reports false if r is not
// whole groups.
func (p *Piece) addLines(r Range, l line, groups, begin, lines int) bool {
	each := r.Size / int64(groups*l.all)
	if r.Lines > 0 || each*int64(groups*l.all) != r.Size || l.count < 1 {
		return false
	}
	r.Begin += int64(begin*l.all+l.first) * each
	r.Lines, r.Pitch = lines, int64(l.all)*each
	r.Size = int64(lines) * int64(l.count) * each
	p.Ranges, p.Size = append(p.Ranges, r), p.Size+r.Size
	return true
}
