package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// frozen is a parameter that stays in the mapped checkpoint, in its dtype.
type frozen struct {
	*parts
	sources []loader.BoundTensor
	read    func() (meta.DType, []byte, error)
}

// newFrozen finds a parameter in a checkpoint without reading it.
func newFrozen(b *loader.Binding, p *meta.Param, stacked bool) (*frozen, error) {
	f := &frozen{parts: &parts{}, sources: b.Tensors(p)}
	f.read = func() (meta.DType, []byte, error) { return b.Values(p) }
	for _, source := range f.sources {
		piece := stored.New(source)
		if source.Expert < 0 && len(p.Shape) == 3 {
			for e := range p.Shape[0] {
				part, err := inPlace(piece.Slab(e))
				if err != nil {
					return nil, err
				}
				f.experts = append(f.experts, []backend.Part{part})
			}
			continue
		}
		part, err := inPlace(piece)
		if err != nil {
			return nil, err
		}
		if source.Expert < 0 {
			f.whole = append(f.whole, part)
			continue
		}
		if f.experts == nil {
			f.experts = make([][]backend.Part, p.Shape[0])
		}
		f.experts[source.Expert] = append(f.experts[source.Expert], part)
	}
	if stacked && len(p.Shape) == 2 && len(f.whole) == 1 { // biases
		for e := range f.whole[0].Dims[0] {
			f.experts = append(f.experts, []backend.Part{{Matrix: backend.Matrix{Tensor: f.whole[0].Index(e)}}})
		}
	}
	return f, nil
}

// inPlace returns a piece in the mapped checkpoint as an operand.
func inPlace(p stored.Piece) (backend.Part, error) {
	part := p.Part
	if err := p.InPlace(&part); err != nil {
		return part, fmt.Errorf("model: %w", err)
	}
	return part, nil
}

// prefetch asks the system to read the pages ahead.
func (f *frozen) prefetch() { f.advise(loader.WillNeed) }

// dropPages releases the pages. The file still has them.
func (f *frozen) dropPages() { f.advise(loader.DontNeed) }

// advise gives a hint to the system. A failure changes no result.
func (f *frozen) advise(a loader.Advice) {
	for _, p := range f.sources {
		off, size := p.Span()
		_ = p.Tensor.Advise(off, size, a)
	}
}

// bufferValues returns a persistent buffer as float32 and its stored dtype. A buffer that the
// checkpoint lacks is zeros.
func bufferValues(b *loader.Binding, buffer *meta.Buffer) (view.Tensor, meta.DType, error) {
	values, stored := make([]float32, meta.Elements(buffer.Shape)), meta.Float32
	if b != nil && len(b.BufferTensors(buffer)) > 0 {
		dtype, data, err := b.BufferValues(buffer)
		if err == nil {
			err = view.Widen(values, data, dtype)
		}
		if err != nil {
			return view.Tensor{}, stored, fmt.Errorf("model: buffer %s: %w", buffer.Name, err)
		}
		stored = dtype
	}
	return view.Floats(values, buffer.Shape...), stored, nil
}

// narrow converts a buffer to the dtype that the checkpoint stores if that is a 16-bit float, else
// to float32.
func narrow(values []float32, dtype meta.DType) []byte {
	if dtype != meta.BFloat16 && dtype != meta.Float16 {
		return floatBytes(values)
	}
	b := make([]byte, dtype.Bytes(int64(len(values))))
	if err := view.Narrow(b, values, dtype); err != nil {
		panic(err) // not met: b has the room, and the dtype is one of two
	}
	return b
}

func floatBytes(values []float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
