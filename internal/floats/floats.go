// Package floats converts single numbers between float32 and the shorter floating-point formats
// of checkpoints: bfloat16, IEEE half, and the 8-bit formats of OCP.
//
// Widening is exact. Narrowing rounds to nearest, ties to even. Whole tensors are converted by
// internal/tensor's Widen and Narrow; products read short formats by kernels of their own, with
// the same results.
package floats

import "math"

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

// ToFloat16 rounds to the nearest IEEE half, ties to even. From 65520 up it is infinite.
func ToFloat16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00
	case u >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case u < 0x38800000: // below the smallest normal half: a multiple of 2^-24
		// The sum has a unit of 2^-24 in its last place, so that the addition rounds.
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3f000000)
	}
	return sign | uint16((u-0x38000000+0xfff+u>>13&1)>>13)
}

// RoundBFloat16 rounds x to the nearest bfloat16, as a float32. A NaN is returned as it is.
func RoundBFloat16(x float32) float32 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return x
	}
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// RoundFloat16 rounds x to the nearest IEEE half, as a float32. A NaN is returned as it is.
func RoundFloat16(x float32) float32 {
	b := math.Float32bits(x)
	sign, a := b&0x80000000, b&0x7fffffff
	switch {
	case a > 0x7f800000: // not a number
		return x
	case a >= 0x477ff000: // from 65520 up
		return math.Float32frombits(sign | 0x7f800000)
	case a < 0x38800000: // below 2^-14: a multiple of 2^-24, the last place of ½
		v := math.Float32frombits(a) + 0.5
		return math.Float32frombits(sign | math.Float32bits(v-0.5))
	}
	a += 0xfff + a>>13&1
	return math.Float32frombits(sign | a&^0x1fff)
}

// FromE4M3 widens one float8_e4m3fn: a sign, 4 bits of exponent, 3 of mantissa, no infinities.
func FromE4M3(b byte) float32 {
	if b&0x7f == 0x7f {
		return float32(math.NaN())
	}
	// The bits read as a half are too small by the difference of the biases.
	return FromFloat16(uint16(b&0x80)<<8|uint16(b&0x7f)<<7) * 256
}

// FromE5M2 widens one float8_e5m2: a sign, 5 bits of exponent, 2 of mantissa, as a half without
// its low byte.
func FromE5M2(b byte) float32 { return FromFloat16(uint16(b) << 8) }

// FromE8M0 widens one float8_e8m0fnu, the power of two 2^(b-127). 255 is a NaN.
func FromE8M0(b byte) float32 {
	switch b {
	case 0:
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}
