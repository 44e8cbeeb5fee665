package jinja

import (
	"math"
	"math/big"
)

// powerBits is the precision in which power computes: far beyond a float64's, so that the result is
// the nearest float64, as C's pow is in all but the rarest cases. Go's math.Pow is not.
const powerBits = 140

// power returns x to the power of y for finite numbers of which x is not 0, or is not negative
// if y is not whole.
func power(x, y float64) float64 {
	p := math.Pow(x, y)
	if x == 1 || y == 0 || y == 1 || p == 0 || math.IsInf(p, 0) || math.IsNaN(p) || math.Abs(p) < 0x1p-1000 {
		return p
	}
	exponent := newBig(y)
	exponent.Mul(exponent, bigLog(math.Abs(x)))
	result, _ := bigExp(exponent).Float64()
	return math.Copysign(result, p)
}

func newBig(f float64) *big.Float { return new(big.Float).SetPrec(powerBits).SetFloat64(f) }

// bigLog returns the natural logarithm of x > 0.
func bigLog(x float64) *big.Float {
	mantissa, exponent := math.Frexp(x)
	if mantissa < math.Sqrt2/2 {
		mantissa, exponent = 2*mantissa, exponent-1
	}
	sum := bigAtanh(newBig(mantissa))
	if exponent != 0 {
		ln2 := bigAtanh(newBig(2))
		sum.Add(sum, ln2.Mul(ln2, newBig(float64(exponent))))
	}
	return sum
}

// bigAtanh returns the logarithm of m, near 1, by the series of 2·atanh((m-1)/(m+1)).
func bigAtanh(m *big.Float) *big.Float {
	one := newBig(1)
	t := newBig(0).Quo(newBig(0).Sub(m, one), newBig(0).Add(m, one))
	square := newBig(0).Mul(t, t)
	sum := newBig(0)
	for k := 1; t.Sign() != 0 && t.MantExp(nil) > -powerBits-8; k += 2 {
		sum.Add(sum, newBig(0).Quo(t, newBig(float64(k))))
		t.Mul(t, square)
	}
	return sum.Mul(sum, newBig(2))
}

// bigExp returns e to the power of x by the exponential's series, of x halved until it is small.
func bigExp(x *big.Float) *big.Float {
	halved := max(x.MantExp(nil)+8, 0)
	small := newBig(0).SetMantExp(x, -halved)
	sum, term := newBig(1), newBig(1)
	for k := 1; term.Sign() != 0 && term.MantExp(nil) > -powerBits-8; k++ {
		term.Quo(term.Mul(term, small), newBig(float64(k)))
		sum.Add(sum, term)
	}
	for range halved {
		sum.Mul(sum, sum)
	}
	return sum
}
