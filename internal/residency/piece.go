package residency

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// addRegions adds the ranges of a piece as regions of a load.
func addRegions(to []region, p *stored.Piece) []region {
	for _, r := range p.Ranges {
		at := newRegion(r.Tensor, r.Begin, r.Size)
		at.lines, at.pitch = r.Lines, r.Pitch
		to = append(to, at)
	}
	return to
}

// bufferValues reads a persistent buffer as float32 from any floating-point dtype. Buffers are
// small. Integers are read as int32, clamped to its range.
func bufferValues(b *loader.Binding, buf *meta.Buffer) (tensor.Tensor, bool, error) {
	parts := b.BufferTensors(buf)
	if len(parts) != 1 {
		return tensor.Tensor{}, false, nil
	}
	data, err := parts[0].Bytes()
	if err != nil {
		return tensor.Tensor{}, false, err
	}
	values := make([]float32, meta.Elements(buf.Shape))
	t := parts[0].Tensor
	result := tensor.Floats(values, buf.Shape...)
	var failed error
	read := func() { failed = tensor.Widen(values, data, t.DType) }
	if t.DType == meta.Int64 || t.DType == meta.Int32 {
		result.DType = meta.Int32
		read = func() {
			if t.DType == meta.Int64 && beyondInt32(data) {
				result.DType, result.Data = meta.Int64, slices.Clone(data)
				return
			}
			integers(result.Data, data, t.DType)
		}
	}
	if err := reading(t, read); err != nil {
		return tensor.Tensor{}, false, fmt.Errorf("residency: %w", err)
	}
	if failed != nil {
		return tensor.Tensor{}, false, fmt.Errorf("residency: buffer %s in %s: %w", t.Name, t.File.Name, failed)
	}
	return result, true, nil
}

// beyondInt32 reports whether src, values of int64, has one outside the range of int32.
func beyondInt32(src []byte) bool {
	for ; len(src) >= 8; src = src[8:] {
		if v := int64(binary.LittleEndian.Uint64(src)); v != int64(int32(v)) {
			return true
		}
	}
	return false
}

// integers copies int64 or int32 values of src to dst, which has int32.
func integers(dst, src []byte, d meta.DType) {
	if d == meta.Int32 {
		copy(dst, src)
		return
	}
	for i := range min(len(src)/8, len(dst)/4) {
		v := int64(binary.LittleEndian.Uint64(src[8*i:]))
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(int32(max(math.MinInt32, min(math.MaxInt32, v)))))
	}
}

// reading calls f, which reads mapped bytes of t. It returns an error if f panics or if the file
// was truncated.
func reading(t *loader.Tensor, f func()) error {
	panicked := hostmem.Guard(f)
	if panicked == nil {
		return nil
	}
	if _, fault := hostmem.FaultAddress(panicked); fault {
		return unreadable(t)
	}
	return fmt.Errorf("reading %s: %v", t.Name, panicked)
}

// unreadable returns the error of a fault in the mapping of t.
func unreadable(t *loader.Tensor) error {
	return fmt.Errorf("%s could not be read: its file was cut short or its disk failed", t.Name)
}
