package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// frozen is a parameter that stays in the checkpoint, in its dtype.
type frozen struct {
	*parts
	sources []loader.Part
	read    func() (meta.DType, []byte, error)
}

// newFrozen finds a parameter in a checkpoint without reading it.
func newFrozen(b *loader.Binding, p *meta.Param, stacked bool) (*frozen, error) {
	f := &frozen{parts: &parts{}, sources: b.Parts(p)}
	f.read = func() (meta.DType, []byte, error) { return b.Values(p) }
	for _, part := range f.sources {
		piece, err := inPlace(part)
		if err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
		switch {
		case part.Expert >= 0:
			if f.experts == nil {
				f.experts = make([][]backend.Part, p.Shape[0])
			}
			f.experts[part.Expert] = append(f.experts[part.Expert], piece)
		case len(p.Shape) == 3:
			for e := range p.Shape[0] {
				f.experts = append(f.experts, []backend.Part{slab(piece, e, p.Shape[0])})
			}
		default:
			f.whole = append(f.whole, piece)
		}
	}
	if stacked && len(p.Shape) == 2 && len(f.whole) == 1 { // biases
		for e := range f.whole[0].Dims[0] {
			f.experts = append(f.experts, []backend.Part{{Matrix: backend.Matrix{Tensor: f.whole[0].Index(e)}}})
		}
	}
	return f, nil
}

// inPlace is a part of a checkpoint as operations take it.
func inPlace(p loader.Part) (backend.Part, error) {
	data, err := p.Bytes()
	if err != nil {
		return backend.Part{}, err
	}
	shape := append([]int(nil), p.Tensor.Shape...)
	if !p.From.IsAll() && len(shape) > 0 {
		shape[0] = p.From.End - p.From.Begin
	}
	m := backend.Matrix{Transposed: p.Transposed}
	if p.Quant != nil {
		shape = p.Quant.Matrix(shape)
		m.Quant = &backend.Quant{Quant: p.Quant, Width: shape[len(shape)-1]}
		for from, to := range map[*loader.Tensor]*view.Tensor{p.Scales: &m.Quant.Scales, p.Zeros: &m.Quant.Zeros, p.Index: &m.Quant.Index} {
			if from == nil {
				continue
			}
			beside, err := from.Bytes()
			if err != nil {
				return backend.Part{}, err
			}
			*to = view.Tensor{DType: from.DType, Data: beside, Rank: 1, Dims: [view.MaxRank]int{int(from.Elements())}}
		}
	}
	m.Tensor = view.Tensor{DType: p.Tensor.DType, Data: data, Rank: min(len(shape), view.MaxRank)}
	copy(m.Dims[:], shape)
	return backend.Part{Matrix: m, Into: p.Into}, nil
}

// slab is expert e of a piece that holds all of n.
func slab(p backend.Part, e, n int) backend.Part {
	out := p
	cut := func(t view.Tensor) []byte {
		size := len(t.Data) / n
		return t.Data[e*size : (e+1)*size]
	}
	out.Data = cut(p.Tensor)
	out.Rank, out.Dims = p.Rank-1, [view.MaxRank]int{p.Dims[1], p.Dims[2]}
	if q := p.Quant; q != nil {
		own := *q
		for _, t := range []*view.Tensor{&own.Scales, &own.Zeros, &own.Index} {
			if !t.IsZero() {
				t.Data = cut(*t)
				t.Dims[0] /= n
			}
		}
		out.Quant = &own
	}
	return out
}

// want asks for the parameter's pages to be read ahead.
func (f *frozen) want() { f.advise(loader.WillNeed) }

// letGo drops its pages, which the file still has.
func (f *frozen) letGo() { f.advise(loader.DontNeed) }

// advise is a hint: that the system refuses it changes no result.
func (f *frozen) advise(a loader.Advice) {
	for _, p := range f.sources {
		off, size := p.Span()
		_ = p.Tensor.Advise(off, size, a)
	}
}

// bufferValues is a persistent buffer as float32, zeros where the checkpoint has none.
func bufferValues(b *loader.Binding, buffer *meta.Buffer) (view.Tensor, error) {
	values := make([]float32, meta.Elements(buffer.Shape))
	if b != nil && len(b.BufferParts(buffer)) > 0 {
		dtype, data, err := b.BufferValues(buffer)
		if err == nil {
			err = widen(values, data, dtype)
		}
		if err != nil {
			return view.Tensor{}, fmt.Errorf("model: buffer %s: %w", buffer.Name, err)
		}
	}
	return view.Floats(values, buffer.Shape...), nil
}

// widen converts elements of a checkpoint to float32, exactly.
func widen(dst []float32, src []byte, dtype meta.DType) error {
	if int64(len(src)) != dtype.Bytes(int64(len(dst))) {
		return fmt.Errorf("%d bytes of %v for %d elements", len(src), dtype, len(dst))
	}
	for i := range dst {
		switch dtype {
		case meta.Float32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case meta.BFloat16:
			dst[i] = kernels.FromBFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		case meta.Float16:
			dst[i] = kernels.FromFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		default:
			return fmt.Errorf("%v cannot be trained", dtype)
		}
	}
	return nil
}
