package vector

import "math"

// These functions consist of additions, products and fused multiply-adds that each round once, in
// one order. Every machine and every GPU kernel therefore computes the same bits. The functions
// of package math differ between machines.

// ln2High has few enough bits that its product with an exponent is exact.
const (
	ln2High = 0.6931471803691238
	ln2Low  = 1.9082149292705877e-10
)

// AccurateExp returns exp(x) within an ulp or two. It returns 0 if the result is subnormal.
func AccurateExp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 709.7827:
		return math.Inf(1)
	case x < -708:
		return 0
	}
	round := 0.5
	if x < 0 {
		round = -0.5
	}
	n := int64(float64(x*1.4426950408889634) + round)
	half := n / 2
	r := math.FMA(-float64(n), ln2Low, math.FMA(-float64(n), ln2High, x))
	z := r * r
	even, odd := math.FMA(z, 1.0/479001600, 1.0/3628800), math.FMA(z, 1.0/6227020800, 1.0/39916800)
	even, odd = math.FMA(even, z, 1.0/40320), math.FMA(odd, z, 1.0/362880)
	even, odd = math.FMA(even, z, 1.0/720), math.FMA(odd, z, 1.0/5040)
	even, odd = math.FMA(even, z, 1.0/24), math.FMA(odd, z, 1.0/120)
	even, odd = math.FMA(even, z, 1.0/2), math.FMA(odd, z, 1.0/6)
	even, odd = math.FMA(even, z, 1), math.FMA(odd, z, 1)
	return math.FMA(odd, r, even) * powerOf2(half) * powerOf2(n-half) // in two parts, because 2^n may be out of range
}

// AccurateExpm1 returns exp(x) - 1 within an ulp or two.
func AccurateExpm1(x float64) float64 {
	if !(math.Abs(x) < 0.35) {
		return AccurateExp(x) - 1
	}
	z := x * x
	odd, even := math.FMA(z, 1.0/6227020800, 1.0/39916800), math.FMA(z, 1.0/479001600, 1.0/3628800)
	odd, even = math.FMA(odd, z, 1.0/362880), math.FMA(even, z, 1.0/40320)
	odd, even = math.FMA(odd, z, 1.0/5040), math.FMA(even, z, 1.0/720)
	odd, even = math.FMA(odd, z, 1.0/120), math.FMA(even, z, 1.0/24)
	odd, even = math.FMA(odd, z, 1.0/6), math.FMA(even, z, 1.0/2)
	return math.FMA(math.FMA(odd, z, 1), x, z*even)
}

// powerOf2 returns 2^n if it is a normal number.
func powerOf2(n int64) float64 { return math.Float64frombits(uint64(n+1023) << 52) }

// AccurateLog1p returns ln(1 + y) for y ≥ 0 within a few ulps.
func AccurateLog1p(y float64) float64 {
	u := 1 + y
	rest := (y - (u - 1)) / u // the rounding error of u
	bits := math.Float64bits(u)
	n := int64(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m, n = m*0.5, n+1
	}
	f := m - 1
	s := f / (2 + f)
	z, twice := s*s, s+s
	q := math.FMA(z, 1.0/23, 1.0/21)
	q = math.FMA(q, z, 1.0/19)
	q = math.FMA(q, z, 1.0/17)
	q = math.FMA(q, z, 1.0/15)
	q = math.FMA(q, z, 1.0/13)
	q = math.FMA(q, z, 1.0/11)
	q = math.FMA(q, z, 1.0/9)
	q = math.FMA(q, z, 1.0/7)
	q = math.FMA(q, z, 1.0/5)
	q = math.FMA(q, z, 1.0/3)
	log := math.FMA(twice*z, q, twice)
	return math.FMA(float64(n), ln2High, log+math.FMA(float64(n), ln2Low, rest))
}

// AccurateSigmoid returns 1 / (1 + exp(-x)).
func AccurateSigmoid(x float64) float64 { return 1 / (1 + AccurateExp(-x)) }
