package stored

import "github.com/heftai/heft/meta"

// ColumnUnit is the number of outputs of which [Piece.Columns] cuts multiples: formats pack eight of them,
// and kernels take 16 at a time.
const ColumnUnit = 64

// InColumns reports whether p is stored with inputs first, in a format that [Piece.Columns] may cut.
func (p *Piece) InColumns() bool {
	m := &p.Part.Matrix
	return m.Rank == 2 && m.Transposed && m.RowStep <= 1 && m.Quant != nil && m.Quant.Format.Row().Layout == meta.InputsFirst
}

// Columns returns outputs [begin, end) of a matrix that is stored with inputs first, as a matrix of its own in the
// same format: its ranges are parts of lines. It reports false if p is not such a matrix or not a whole tensor, or if
// outputs are not multiples of ColumnUnit.
func (p *Piece) Columns(begin, end int) (Piece, bool) {
	m := &p.Part.Matrix
	outputs := m.Dims[1]
	if !p.InColumns() || m.Quant.Width != outputs || m.Row != 0 || m.Col != 0 || begin < 0 || begin >= end || end > outputs ||
		begin%ColumnUnit != 0 || end%ColumnUnit != 0 && end != outputs {
		return Piece{}, false
	}
	out := Piece{Part: p.NewPart()}
	q := out.Part.Quant
	out.Part.Dims[1], q.Width = end-begin, end-begin
	first := p.Part.Into.Begin
	out.Part.Into = meta.RowRange{Begin: first + begin, End: first + end}
	k := 0
	for i, r := range p.Ranges {
		for ; k > 0 && beside(q)[k-1].Rank == 0; k++ { // the format has no such tensor
		}
		if k > 0 && beside(q)[k-1] == &q.Index { // of inputs, which all outputs share
			out.Ranges, out.Size = append(out.Ranges, r), out.Size+r.Size
			k++
			continue
		}
		if len(r.Tensor.Shape) != 2 || r.Begin != 0 || r.Size != r.Tensor.Size || r.Tensor.Shape[0] < 1 {
			return Piece{}, false
		}
		r.Lines = r.Tensor.Shape[0]
		r.Pitch = r.Size / int64(r.Lines)
		if r.Pitch*int64(begin)%int64(outputs) != 0 || r.Pitch*int64(end)%int64(outputs) != 0 {
			return Piece{}, false
		}
		from, to := r.Pitch*int64(begin)/int64(outputs), r.Pitch*int64(end)/int64(outputs)
		r.Begin, r.Size = from, int64(r.Lines)*(to-from)
		if i > 0 {
			t := beside(q)[k-1]
			*t = View(t.DType, []int{int(r.Size / t.DType.Bytes(1))})
		}
		out.Ranges, out.Size = append(out.Ranges, r), out.Size+r.Size
		k++
	}
	return out, true
}
