package deviceweights

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Conversion converts matrices when they are loaded. The zero value converts none. A host has the same blocks in an
// order of its own.
type Conversion struct {
	backend.Deinterleaver
	// Params are the parameters to convert, where they are operands of products.
	Params map[*meta.Param]int64
}

// key returns the key of a parameter as a unit reads it.
func (w *Weights) key(u *unit, p *meta.Param, expert int) key {
	converted := w.convert.Deinterleaver != nil && w.convert.Params[p] > 0 && (u == nil || !u.tables[p])
	return key{p, expert, converted}
}

// sizes returns the bytes that a piece of s takes: of each range, or converted.
func (w *Weights) sizes(s *slab, piece *stored.Piece) (list []int64, err error) {
	if !s.converted {
		for _, r := range piece.Ranges {
			list = append(list, r.Size)
		}
		return list, nil
	}
	part, size, err := w.convert.Converted(piece.Part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", piece.Ranges[0].Tensor.Name, err)
	}
	s.parts = append(s.parts, part)
	return []int64{size}, nil
}

// convertBytes is how many bytes as stored are converted at a time, or one group of rows.
const convertBytes = 16 << 20

// loadConverted sets part to piece i of s, which it converts and copies to the device.
func (w *Weights) loadConverted(s *slab, i int, part *backend.Part) error {
	r, to := s.pieces[i].Ranges[0], s.memory[i][0]
	*part = s.parts[i]
	quant := *part.Quant
	part.Quant = &quant
	if err := r.Tensor.File.ReadUnchanged(func() error { return w.convertRange(to, r, s.pieces[i].Part) }); err != nil {
		return err
	}
	r.Tensor.File.Evict(r.Tensor.Offset+r.Begin, r.Size)
	stored.Place(part, 0, to)
	return nil
}

// convertRange converts r, the elements of part, some rows at a time.
func (w *Weights) convertRange(to tensor.Tensor, r stored.Range, part backend.Part) error {
	data, err := r.Tensor.Bytes()
	if err != nil {
		return err
	}
	data = data[r.Begin : r.Begin+r.Size]
	rows, group := part.Dims[0], w.convert.RowGroup()
	if rows == 0 {
		return nil
	}
	from, size := len(data)/rows, to.Elements()/rows // bytes of a row
	each := max(convertBytes/max(from, 1)/group, 1) * group
	if need := min(each, rows) * size; len(w.blocks) < need {
		w.blocks = make([]byte, need)
	}
	for first := 0; first < rows; first += each {
		n := min(each, rows-first)
		some := part
		some.Dims[0] = n
		blocks := w.blocks[:n*size]
		err := w.convert.Convert(context.Background(), blocks, data[first*from:][:n*from], &some)
		if fault := (*backend.FaultError)(nil); errors.As(err, &fault) {
			return unreadable(r)
		} else if err != nil {
			return fmt.Errorf("%s: %w", r.Tensor.Name, err)
		}
		host, err := tensor.Of(blocks, meta.Uint8, len(blocks))
		if err != nil {
			return err
		}
		if err := w.memory.Copy(to.Slice(first*size, (first+n)*size), host); err != nil {
			return err
		}
	}
	return nil
}

// unreadable is the error of a range whose mapping could not be read.
func unreadable(r stored.Range) error {
	return fmt.Errorf("%s could not be read: its file was cut short or its disk failed", r.Tensor.Name)
}
