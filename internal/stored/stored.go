// Package stored is what a checkpoint stores of a parameter, in the terms of the operations
// that read it.
//
// A [Piece] is a part of a parameter as one operation takes it, with the ranges ([Range]) of
// checkpoint tensors that it is made of: values, or codes and what the format has beside
// them. [New] makes one of what the loader has found, [Piece.Slab] cuts an expert out of a
// stack. A piece is a pattern that never changes: whoever brings its ranges to memory takes
// [Piece.NewPart] and points that to them with [Set], or to the checkpoint's mapping with
// [Piece.InPlace].
//
// It reads nothing itself, and knows neither tiers nor units.
package stored

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Piece is a range of a checkpoint tensor that fills a part of a parameter, with the
// ranges of scales and zeros where it is quantised: they are brought together.
type Piece struct {
	Ranges []Range
	Size   int64        // of all ranges
	Part   backend.Part // without Data; [Piece.NewPart] makes one to point to some
}

// A Range is bytes of a checkpoint tensor: Size of them from Begin on. With Lines they are in so many parts of equal
// size that begin Pitch bytes apart.
type Range struct {
	Tensor      *loader.Tensor
	Begin, Size int64
	Lines       int
	Pitch       int64
}

// New is what a loader's part selects.
func New(p loader.BoundTensor) Piece {
	shape := p.Tensor.Shape
	if !p.From.IsAll() && len(shape) > 0 {
		shape = append([]int{p.From.End - p.From.Begin}, shape[1:]...)
	}
	begin, size := p.Span()
	out := Piece{Ranges: []Range{{Tensor: p.Tensor, Begin: begin, Size: size}}, Size: size}
	m := backend.Matrix{Transposed: p.Transposed}
	if p.Quant != nil {
		shape = p.Quant.Matrix(shape)
		q := &backend.Quant{Quant: p.Quant, Width: shape[len(shape)-1]}
		for i, t := range []*loader.Tensor{p.Scales, p.Zeros, p.Index, p.Global} {
			if t != nil {
				*beside(q)[i] = View(t.DType, []int{int(t.Elements())})
				out.Ranges = append(out.Ranges, Range{Tensor: t, Size: t.Size})
				out.Size += t.Size
			}
		}
		m.Quant = q
	}
	m.Tensor = View(p.Tensor.DType, shape)
	out.Part = backend.Part{Matrix: m, Into: p.Into}
	return out
}

// NewPart returns a part without Data that shares nothing with p's or with another part of p: what a
// format has beside its codes is found through a pointer, and a copy of Part would share it.
func (p *Piece) NewPart() backend.Part {
	part := p.Part
	if part.Quant != nil {
		own := *part.Quant
		part.Quant = &own
	}
	return part
}

// View is a tensor without its bytes.
func View(d meta.DType, shape []int) tensor.Tensor {
	t := tensor.Tensor{DType: d, Rank: min(len(shape), tensor.MaxRank)}
	copy(t.Dims[:], shape)
	return t
}

// beside are the tensors that a format has beside the codes, in the order of a piece's ranges.
func beside(q *backend.Quant) [4]*tensor.Tensor {
	return [4]*tensor.Tensor{&q.Scales, &q.Zeros, &q.Index, &q.Global}
}

// Slab is expert e of a piece that holds a whole stack, [experts, …].
func (p Piece) Slab(e int) Piece {
	shape := p.Part.Shape()
	out := Piece{Part: p.NewPart()}
	out.Part.Tensor = View(p.Part.DType, shape[1:])
	if q := out.Part.Quant; q != nil {
		for _, t := range beside(q) {
			t.Dims[0] /= shape[0]
		}
	}
	for _, r := range p.Ranges {
		r.Size /= int64(shape[0])
		r.Begin += int64(e) * r.Size
		out.Ranges = append(out.Ranges, r)
		out.Size += r.Size
	}
	return out
}

// Rows returns rows [begin, end) of the matrix of p. It reports false if they are not contiguous in
// the file, or share scales with other rows. Multiples of RowUnit do not share any.
func (p *Piece) Rows(begin, end int) (Piece, bool) {
	m := &p.Part.Matrix
	if m.Rank != 2 || m.Transposed || m.RowStep > 1 || begin < 0 || end > m.Dims[0] || begin >= end {
		return Piece{}, false
	}
	rows, columns := m.Dims[0], m.Dims[1]
	out := Piece{Part: p.Part}
	out.Part.Dims[0] = end - begin
	first := p.Part.Into.Begin
	out.Part.Into = meta.RowRange{Begin: first + begin, End: first + end}
	if m.Quant == nil {
		row := p.Size / int64(rows)
		out.Ranges = []Range{{Tensor: p.Ranges[0].Tensor, Begin: p.Ranges[0].Begin + int64(begin)*row, Size: int64(end-begin) * row}}
		out.Size = out.Ranges[0].Size
		return out, row*int64(rows) == p.Size
	}
	if m.Quant.Height > 0 {
		return p.tiles(begin, end)
	}
	if m.Quant.Format.Row().Codes.Flat {
		return Piece{}, false
	}
	own := *m.Quant
	out.Part.Quant = &own
	total, before, those := entries(m.Quant, rows, columns), entries(m.Quant, begin, columns), entries(m.Quant, end-begin, columns)
	if !own.Index.IsZero() || m.Quant.Format.Row().Layout == meta.InputsFirst || begin%RowUnit(m.Quant.Quant) != 0 {
		return Piece{}, false
	}
	k := 0
	for i, r := range p.Ranges {
		for ; k > 0 && beside(&own)[k-1].Rank == 0; k++ { // the format has no such tensor
		}
		each := r.Size / int64(max(total[k], 1))
		if k > 0 && total[k] == 1 { // one scale for all rows
			before[k], those[k] = 0, 1
		}
		r.Begin, r.Size = r.Begin+int64(before[k])*each, int64(those[k])*each
		if i > 0 {
			*beside(&own)[k-1] = View(beside(&own)[k-1].DType, []int{those[k]})
		}
		out.Ranges = append(out.Ranges, r)
		out.Size += r.Size
		k++
	}
	return out, true
}

// tiles is Rows for a converted matrix: tiles of rows follow each other, and the bytes of a row are all in
// its tile.
func (p *Piece) tiles(begin, end int) (Piece, bool) {
	rows := p.Part.Dims[0]
	each := p.Size / int64(rows)
	if len(p.Ranges) != 1 || each*int64(rows) != p.Size || p.Part.Quant.Height != rows || begin%interleaved != 0 {
		return Piece{}, false
	}
	out := Piece{Part: p.NewPart(), Size: int64(end-begin) * each}
	out.Part.Dims[0], out.Part.Quant.Height = end-begin, end-begin
	first := p.Part.Into.Begin
	out.Part.Into = meta.RowRange{Begin: first + begin, End: first + end}
	out.Ranges = []Range{{Tensor: p.Ranges[0].Tensor, Begin: p.Ranges[0].Begin + int64(begin)*each, Size: out.Size}}
	return out, true
}

// interleaved is the number of rows of a tile, which kernels interleave.
const interleaved = 16

// RowUnit is the number of rows that share scales or are interleaved, nil for values.
func RowUnit(q *meta.Quant) int {
	if q == nil || q.Rows == meta.AllRows {
		return interleaved
	}
	n := max(q.Rows, 1)
	for n%interleaved != 0 {
		n *= 2
	}
	return n
}

// entries are the elements of codes, scales, zeros, index and global of so many rows.
func entries(q *backend.Quant, rows, columns int) [5]int {
	codes, scales, zeros, index := q.Entries(rows, columns)
	return [5]int{codes, scales, zeros, index, 1}
}

// InPlace points part, one of [Piece.NewPart], to the checkpoint.
func (p *Piece) InPlace(part *backend.Part) error {
	for i, r := range p.Ranges {
		b, err := r.Tensor.Bytes()
		if err != nil {
			return err
		}
		Set(part, i, b[r.Begin:r.Begin+r.Size])
	}
	return nil
}

// SetConverted points part to the bytes of a converted matrix: its codes and, where the format has them
// apart, its scales behind them.
func SetConverted(part *backend.Part, data []byte) {
	if n := int(part.Quant.Scales.Bytes()); n > 0 {
		part.Quant.Scales.Data = data[len(data)-n:]
		data = data[:len(data)-n]
	}
	part.Data = data
}

// Set points a part to the bytes of range i of its piece.
func Set(part *backend.Part, i int, data []byte) { Place(part, i, tensor.Tensor{Data: data}) }

// Place points a part to the memory of range i of its piece, which may be a device's.
func Place(part *backend.Part, i int, memory tensor.Tensor) {
	if i == 0 {
		part.Data, part.Address = memory.Data, memory.Address
		return
	}
	for _, t := range beside(part.Quant) {
		if t.Rank > 0 {
			if i--; i == 0 {
				t.Data, t.Address = memory.Data, memory.Address
			}
		}
	}
}

// Memory returns the bytes of range i of a part in host memory, and false behind the last range.
func Memory(part *backend.Part, i int) ([]byte, bool) {
	if i == 0 {
		return part.Data, true
	}
	if part.Quant == nil {
		return nil, false
	}
	for _, t := range beside(part.Quant) {
		if t.Rank > 0 {
			if i--; i == 0 {
				return t.Data, true
			}
		}
	}
	return nil, false
}
