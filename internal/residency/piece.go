package residency

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A piece is a range of a checkpoint tensor that fills a part of a parameter, with the
// ranges of scales and zeros where it is quantised: they are brought together.
type piece struct {
	ranges []byteRange
	size   int64        // of all ranges
	part   backend.Part // without Data
}

// A byteRange is bytes of a checkpoint tensor.
type byteRange struct {
	tensor      *loader.Tensor
	begin, size int64
}

// newPiece is what a loader's part selects.
func newPiece(p loader.Part) piece {
	shape := p.Tensor.Shape
	if !p.From.IsAll() && len(shape) > 0 {
		shape = append([]int{p.From.End - p.From.Begin}, shape[1:]...)
	}
	begin, size := p.Span()
	out := piece{ranges: []byteRange{{p.Tensor, begin, size}}, size: size}
	m := backend.Matrix{Transposed: p.Transposed}
	if p.Quant != nil {
		shape = p.Quant.Matrix(shape)
		q := &backend.Quant{Quant: p.Quant, Width: shape[len(shape)-1]}
		for _, beside := range []struct {
			from *loader.Tensor
			to   *tensor.Tensor
		}{{p.Scales, &q.Scales}, {p.Zeros, &q.Zeros}, {p.Index, &q.Index}} {
			if beside.from != nil {
				*beside.to = view(beside.from.DType, []int{int(beside.from.Elements())})
				out.ranges = append(out.ranges, byteRange{beside.from, 0, beside.from.Size})
				out.size += beside.from.Size
			}
		}
		m.Quant = q
	}
	m.Tensor = view(p.Tensor.DType, shape)
	out.part = backend.Part{Matrix: m, Into: p.Into}
	return out
}

// view is a tensor without its bytes.
func view(d meta.DType, shape []int) tensor.Tensor {
	t := tensor.Tensor{DType: d, Rank: min(len(shape), tensor.MaxRank)}
	copy(t.Dims[:], shape)
	return t
}

// slab is expert e of a piece that holds a whole stack, [experts, …].
func (p piece) slab(e int) piece {
	shape := p.part.Shape()
	out := piece{part: p.part}
	out.part.Tensor = view(p.part.DType, shape[1:])
	if q := p.part.Quant; q != nil {
		own := *q
		out.part.Quant = &own
	}
	for _, r := range p.ranges {
		r.size /= int64(shape[0])
		r.begin += int64(e) * r.size
		out.ranges = append(out.ranges, r)
		out.size += r.size
	}
	return out
}

func (p *piece) regions(to []region) []region {
	for _, r := range p.ranges {
		to = append(to, newRegion(r.tensor, r.begin, r.size))
	}
	return to
}

// inSlot points part to the bytes of the piece in a slot, where places are those of its
// ranges.
func (p *piece) inSlot(part *backend.Part, slot []byte, places []int64) {
	for i, r := range p.ranges {
		*data(part, i) = slot[places[i] : places[i]+r.size]
	}
}

// inPlace points part to the checkpoint.
func (p *piece) inPlace(part *backend.Part) error {
	for i, r := range p.ranges {
		b, err := r.tensor.Bytes()
		if err != nil {
			return err
		}
		*data(part, i) = b[r.begin : r.begin+r.size]
	}
	return nil
}

// data is where the bytes of range i of a piece belong: codes or values, then what the
// format has beside them, in the order of newPiece.
func data(part *backend.Part, i int) *[]byte {
	if i == 0 {
		return &part.Data
	}
	for _, t := range []*tensor.Tensor{&part.Quant.Scales, &part.Quant.Zeros, &part.Quant.Index} {
		if t.Rank > 0 {
			if i--; i == 0 {
				return &t.Data
			}
		}
	}
	return nil
}

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

// reading calls f, which reads mapped bytes of t. A file that was cut short is an error.
func reading(t *loader.Tensor, f func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("%s could not be read: its file was cut short or its disk failed", t.Name)
		default:
			err = fmt.Errorf("reading %s: %v", t.Name, r)
		}
	}()
	f()
	return nil
}
