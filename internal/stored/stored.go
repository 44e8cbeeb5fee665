// Package stored is what a checkpoint stores of a parameter, in the terms of the operations
// that read it.
//
// A [Piece] is a part of a parameter as one operation takes it, with the [Range]s of
// checkpoint tensors that it is made of: values, or codes and what the format has beside
// them. [New] makes one of what the loader has found, [Piece.Slab] cuts an expert out of a
// stack. Whoever brings the ranges to memory points the piece's part to it with [Set];
// [Piece.InPlace] points it to the checkpoint's mapping.
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
	Part   backend.Part // without Data
}

// A Range is bytes of a checkpoint tensor.
type Range struct {
	Tensor      *loader.Tensor
	Begin, Size int64
}

// New is what a loader's part selects.
func New(p loader.BoundTensor) Piece {
	shape := p.Tensor.Shape
	if !p.From.IsAll() && len(shape) > 0 {
		shape = append([]int{p.From.End - p.From.Begin}, shape[1:]...)
	}
	begin, size := p.Span()
	out := Piece{Ranges: []Range{{p.Tensor, begin, size}}, Size: size}
	m := backend.Matrix{Transposed: p.Transposed}
	if p.Quant != nil {
		shape = p.Quant.Matrix(shape)
		q := &backend.Quant{Quant: p.Quant, Width: shape[len(shape)-1]}
		for i, t := range []*loader.Tensor{p.Scales, p.Zeros, p.Index} {
			if t != nil {
				*beside(q)[i] = View(t.DType, []int{int(t.Elements())})
				out.Ranges = append(out.Ranges, Range{t, 0, t.Size})
				out.Size += t.Size
			}
		}
		m.Quant = q
	}
	m.Tensor = View(p.Tensor.DType, shape)
	out.Part = backend.Part{Matrix: m, Into: p.Into}
	return out
}

// View is a tensor without its bytes.
func View(d meta.DType, shape []int) tensor.Tensor {
	t := tensor.Tensor{DType: d, Rank: min(len(shape), tensor.MaxRank)}
	copy(t.Dims[:], shape)
	return t
}

// beside are the tensors that a format has beside the codes, in the order of a piece's ranges.
func beside(q *backend.Quant) [3]*tensor.Tensor {
	return [3]*tensor.Tensor{&q.Scales, &q.Zeros, &q.Index}
}

// Slab is expert e of a piece that holds a whole stack, [experts, …].
func (p Piece) Slab(e int) Piece {
	shape := p.Part.Shape()
	out := Piece{Part: p.Part}
	out.Part.Tensor = View(p.Part.DType, shape[1:])
	if q := p.Part.Quant; q != nil {
		own := *q
		for _, t := range beside(&own) {
			t.Dims[0] /= shape[0]
		}
		out.Part.Quant = &own
	}
	for _, r := range p.Ranges {
		r.Size /= int64(shape[0])
		r.Begin += int64(e) * r.Size
		out.Ranges = append(out.Ranges, r)
		out.Size += r.Size
	}
	return out
}

// InPlace points part, a copy of p.Part, to the checkpoint.
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

// Set points a part to the bytes of range i of its piece.
func Set(part *backend.Part, i int, data []byte) {
	if i == 0 {
		part.Data = data
		return
	}
	for _, t := range beside(part.Quant) {
		if t.Rank > 0 {
			if i--; i == 0 {
				t.Data = data
			}
		}
	}
}
