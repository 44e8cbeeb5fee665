package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// bufferValues returns a persistent buffer as float32, and its stored dtype. Integers keep their
// dtype. If the checkpoint lacks the buffer, it is zeros.
func bufferValues(b *loader.Binding, buffer *meta.Buffer) (view.Tensor, meta.DType, error) {
	values, stored := make([]float32, meta.Elements(buffer.Shape)), meta.Float32
	if b != nil && len(b.BufferTensors(buffer)) > 0 {
		dtype, data, err := b.BufferValues(buffer)
		if err == nil && isInteger(dtype) {
			t, err := view.Of(data, dtype, buffer.Shape...)
			if err != nil {
				return t, dtype, fmt.Errorf("model: buffer %s: %w", buffer.Name, err)
			}
			return t, dtype, nil
		}
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

func isInteger(d meta.DType) bool { return d == meta.Int64 || d == meta.Int32 }

// bufferBytes returns the bytes of a buffer for a checkpoint with the given dtype.
func bufferBytes(t view.Tensor, dtype meta.DType) []byte {
	if isInteger(dtype) {
		return t.Data
	}
	return narrow(t.F32(), dtype)
}

// narrow converts a buffer to the dtype that the checkpoint stores if that is a 16-bit float, else
// to float32.
func narrow(values []float32, dtype meta.DType) []byte {
	if dtype != meta.BFloat16 && dtype != meta.Float16 {
		return floatBytes(values)
	}
	b := make([]byte, dtype.Bytes(int64(len(values))))
	if err := view.Narrow(b, values, dtype); err != nil {
		panic(err) // cannot happen: b is large enough, and the dtype is one of two
	}
	return b
}

func floatBytes(values []float32) []byte {
	return appendFloats(make([]byte, 0, 4*len(values)), values)
}

func appendFloats(b []byte, values []float32) []byte {
	b = slices.Grow(b, 4*len(values))
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
