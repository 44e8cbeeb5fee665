package mat

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/floats"
)

// FromBFloat16 calls [floats.FromBFloat16].
func FromBFloat16(b uint16) float32 { return floats.FromBFloat16(b) }

// ToBFloat16 calls [floats.ToBFloat16].
func ToBFloat16(f float32) uint16 { return floats.ToBFloat16(f) }

// FromFloat16 calls [floats.FromFloat16].
func FromFloat16(h uint16) float32 { return floats.FromFloat16(h) }

// ToFloat16 calls [floats.ToFloat16].
func ToFloat16(f float32) uint16 { return floats.ToFloat16(f) }

// NarrowBFloat16 stores src rounded to bfloat16 at dst.
func NarrowBFloat16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToBFloat16(v))
	}
}

// NarrowFloat16 stores src rounded to float16 at dst.
func NarrowFloat16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToFloat16(v))
	}
}

// Narrow stores src at dst, rounded to f.
func Narrow(dst []byte, src []float32, f Format) {
	switch f {
	case BFloat16:
		NarrowBFloat16(dst, src)
	case Float16:
		NarrowFloat16(dst, src)
	case Float32:
		dst = dst[:4*len(src)]
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	}
}

// Widen converts len(dst) elements of src to float32, exactly.
func Widen(dst []float32, src []byte, f Format) {
	switch f {
	case BFloat16:
		for i := range dst {
			dst[i] = FromBFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Float16:
		for i := range dst {
			dst[i] = FromFloat16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case Float32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}
