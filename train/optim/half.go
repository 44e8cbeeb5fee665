package optim

import "math"

// BFloat16 rounds x to the nearest bfloat16, ties to even.
func BFloat16(x float32) float32 {
	if x != x {
		return x
	}
	b := math.Float32bits(x)
	b += 0x7fff + b>>16&1
	return math.Float32frombits(b &^ 0xffff)
}

// Float16 rounds x to the nearest IEEE half, ties to even. From 65520 up it is
// infinite.
func Float16(x float32) float32 {
	a := math.Abs(float64(x))
	if !(a < 65520) {
		if a != a {
			return x
		}
		return float32(math.Copysign(math.Inf(1), float64(x)))
	}
	// The gap between halves around a: 2^-10 of its binade, at least 2^-24.
	_, exponent := math.Frexp(a)
	unit := math.Ldexp(1, max(exponent-11, -24))
	return float32(math.Copysign(math.RoundToEven(a/unit)*unit, float64(x)))
}

// Float16Bits is x as an IEEE half, rounded as [Float16] does.
func Float16Bits(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	v := math.Abs(float64(Float16(x)))
	switch {
	case v != v:
		return sign | 0x7e00
	case math.IsInf(v, 1):
		return sign | 0x7c00
	case v < math.Ldexp(1, -14): // subnormal
		return sign | uint16(math.Ldexp(v, 24))
	}
	fraction, exponent := math.Frexp(v) // v = fraction · 2^exponent, fraction in [½, 1)
	return sign | uint16(exponent+14)<<10 | uint16(math.Ldexp(fraction, 11))&0x3ff
}
