package mat

import (
	"encoding/binary"
	"math"
)

// FromBFloat16 widens one bfloat16.
func FromBFloat16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBFloat16 rounds to the nearest bfloat16, ties to even. A NaN stays one.
func ToBFloat16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// FromFloat16 widens one IEEE half, subnormals included.
func FromFloat16(h uint16) float32 {
	u := uint32(h&0x7fff) << 13
	if u >= 0x7c00<<13 {
		u |= 0x7f800000
	} else {
		// The bits read as a float32 are too small by the difference of the biases.
		u = math.Float32bits(math.Float32frombits(u) * 0x1p112)
	}
	return math.Float32frombits(u | uint32(h&0x8000)<<16)
}

// ToFloat16 rounds to the nearest IEEE half, ties to even; beyond its range to infinity.
func ToFloat16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00
	case u >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case u < 0x38800000: // below the least normal half: a multiple of 2^-24
		// The sum has a unit of 2^-24 in its last place, so that the addition rounds.
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3f000000)
	}
	return sign | uint16((u-0x38000000+0xfff+u>>13&1)>>13)
}

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
