package sample

import "math"

// expNeg is e^x for x <= 0, within 2e-7 of it, and 0 below -87 (and for -Inf).
// x = n ln2 + r with ln2 in two parts (Cody and Waite 1980), e^r by its series. All in
// float32: conversions to float64 would cost more than the series.
func expNeg(x float32) float32 {
	const (
		log2e  = 1.44269504
		ln2Hi  = 0.693359375 // few bits: n*ln2Hi is exact
		ln2Lo  = -2.12194440e-4
		bias   = 3 << 22 // adding it leaves the nearest integer in the low bits
		expOne = 127
	)
	if x < -87 {
		return 0
	}
	n := x*log2e + bias
	bits := math.Float32bits(n)
	n -= bias
	r := x - n*ln2Hi - n*ln2Lo
	r2 := r * r
	e := 1 + (r + r2*((0.5+r*(1.0/6))+r2*((1.0/24+r*(1.0/120))+r2*(1.0/720+r*(1.0/5040)))))
	return e * math.Float32frombits((bits+expOne)<<23)
}
