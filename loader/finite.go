package loader

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
)

// CheckScales reads the scales of all quantised weights and returns an error that names the first
// tensor with a scale that is NaN or infinite. Opening a checkpoint does not read them, so use it
// to explain results that are not finite. It takes as long as reading the scales.
func (b *Binding) CheckScales() error {
	formats := map[*Tensor]meta.QuantFormat{}
	for p := range b.params {
		for _, part := range b.Tensors(p) {
			if part.Quant != nil {
				formats[part.Scales], formats[part.Zeros], formats[part.Global] = part.Quant.Format, part.Quant.Format, part.Quant.Format
			}
		}
	}
	delete(formats, nil)
	tensors := slices.SortedFunc(maps.Keys(formats), func(a, b *Tensor) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range tensors {
		if err := checkFinite(t, formats[t]); err != nil {
			return err
		}
	}
	return nil
}

// checkFinite checks the values of a companion of codes. Integers are finite, except for the
// exponents of scales that are powers of two.
func checkFinite(t *Tensor, f meta.QuantFormat) error {
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	i := -1
	switch t.DType {
	case meta.Float32:
		i = firstOf(data, 4, func(b []byte) bool { return binary.LittleEndian.Uint32(b)&0x7f800000 == 0x7f800000 })
	case meta.BFloat16:
		i = firstOf(data, 2, func(b []byte) bool { return binary.LittleEndian.Uint16(b)&0x7f80 == 0x7f80 })
	case meta.Float16:
		i = firstOf(data, 2, func(b []byte) bool { return binary.LittleEndian.Uint16(b)&0x7c00 == 0x7c00 })
	case meta.Float8E4M3:
		i = firstOf(data, 1, func(b []byte) bool { return b[0]&0x7f == 0x7f })
	case meta.Float8E8M0, meta.Uint8:
		if f.Row().PowerScales() {
			i = bytes.IndexByte(data, math.MaxUint8)
		}
	}
	if i >= 0 {
		return failf(t.File.Name, t.Name, "element %d is not finite, want finite scales; fetch the file again", i)
	}
	return nil
}

// firstOf returns the index of the first element of the given size that is bad, or -1.
func firstOf(data []byte, size int, bad func([]byte) bool) int {
	for i := 0; (i+1)*size <= len(data); i++ {
		if bad(data[i*size:]) {
			return i
		}
	}
	return -1
}
