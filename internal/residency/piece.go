package residency

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A piece is a range of a checkpoint tensor that fills a part of a parameter.
type piece struct {
	tensor      *loader.Tensor
	begin, size int64        // bytes of the tensor
	part        backend.Part // without Data
}

// newPiece is the range that a loader's part selects.
func newPiece(p loader.Part) piece {
	shape := p.Tensor.Shape
	if !p.From.IsAll() && len(shape) > 0 {
		shape = append([]int{p.From.End - p.From.Begin}, shape[1:]...)
	}
	begin, _ := p.Span()
	return shaped(p.Tensor, begin, shape, p.Into, p.Transposed)
}

func shaped(t *loader.Tensor, begin int64, shape []int, into meta.Rows, transposed bool) piece {
	view := tensor.Tensor{DType: t.DType, Rank: len(shape)}
	copy(view.Dims[:], shape)
	return piece{
		tensor: t, begin: begin, size: t.DType.Bytes(meta.Elements(shape)),
		part: backend.Part{Matrix: backend.Matrix{Tensor: view, Transposed: transposed}, Into: into},
	}
}

// slab is expert e of a piece that holds a whole stack, [experts, …].
func (p piece) slab(e int) piece {
	shape := p.part.Shape()[1:]
	size := p.tensor.DType.Bytes(meta.Elements(shape))
	return shaped(p.tensor, p.begin+int64(e)*size, shape, p.part.Into, p.part.Transposed)
}

func (p piece) region() region { return newRegion(p.tensor, p.begin, p.size) }

// bufferValues reads a persistent buffer, which is small, as float32.
func bufferValues(b *loader.Binding, buf *meta.Buffer) (tensor.Tensor, bool, error) {
	parts := b.BufferParts(buf)
	if len(parts) != 1 {
		return tensor.Tensor{}, false, nil
	}
	data, err := parts[0].Bytes()
	if err != nil {
		return tensor.Tensor{}, false, err
	}
	values := make([]float32, meta.Elements(buf.Shape))
	for i := range values {
		switch t := parts[0].Tensor; t.DType {
		case meta.Float32:
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case meta.BFloat16:
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		default:
			return tensor.Tensor{}, false, fmt.Errorf("residency: buffer %s is %v; float32 and bfloat16 are read", t.Name, t.DType)
		}
	}
	return tensor.Floats(values, buf.Shape...), true, nil
}
