package vector

import (
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

func (goOps) expSum(x []float32, shift float32) float32 {
	var l mat.Lanes8
	for i, v := range x {
		e := Exp(v - shift)
		x[i] = e
		l[i%mat.GoLanes] += e
	}
	return l.Fold()
}

func (goOps) gate(dst, gate, up []float32, c1, c3 float32) {
	for i, g := range gate {
		u := float32(g * c1)
		if c3 != 0 { // otherwise 0·g³ would turn an infinity into NaN
			u = float32(g * (c1 + float32(c3*float32(g*g))))
		}
		a := g / (1 + Exp(-u))
		if up != nil {
			a *= up[i]
		}
		dst[i] = a
	}
}

func (goOps) gelu(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
	}
}

func (goOps) tanh(x []float32, inner, outer float32) {
	for i, v := range x {
		x[i] = outer * float32(math.Tanh(float64(inner*v)))
	}
}

func (goOps) scaleMax(x []float32, scale float32) float32 {
	top := float32(math.Inf(-1))
	for i, v := range x {
		v *= scale
		x[i] = v
		if v > top {
			top = v
		}
	}
	return top
}

func (goOps) sumSquares(x []float32, shift float32) float32 {
	var s mat.Lanes8
	i := 0
	for ; i+8 <= len(x); i += 8 {
		v := (*[8]float32)(x[i:])
		for j := range s {
			d := v[j] - shift
			s[j] += float32(d * d)
		}
	}
	for j := i; j < len(x); j++ {
		d := x[j] - shift
		s[j-i] += float32(d * d)
	}
	return s.Fold()
}

func (goOps) widen(dst []float32, src []byte, f mat.Format) { mat.Widen(dst, src, f) }

func (goOps) columns(dst mat.Floats, w mat.Weights, rows, cols int) {
	mat.Transpose(dst, w, 0, rows, 0, cols)
}

// The argument reduction of Exp: x = n·ln 2 + r with ln 2 in two parts. The first has so few bits
// that its product with n is exact.
const (
	log2E = 1.44269504088896340736
	ln2Hi = 0.693359375
	ln2Lo = -2.12194440054690582767e-4
)

// Exp returns e^x within 2 units in the last place: the Taylor polynomial of degree 7 for |r| ≤
// ln 2 / 2, whose remainder is below 6e-9, times 2^n.
func Exp(x float32) float32 {
	switch {
	case x > 88.8:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	case x != x:
		return x
	}
	const round = 3 << 22 // adding it rounds to the nearest integer
	n := float32(float32(x*log2E)+round) - round
	r := float32(x-float32(n*ln2Hi)) - float32(n*ln2Lo)
	p := float32(r*(1./5040)) + 1./720
	p = float32(p*r) + 1./120
	p = float32(p*r) + 1./24
	p = float32(p*r) + 1./6
	p = float32(p*r) + 1./2
	p = float32(p*r) + 1
	p = float32(p*r) + 1
	// There are two factors, because 2^n may be out of range although the result is not.
	half := int32(n) >> 1
	a := math.Float32frombits(uint32(half+127) << 23)
	b := math.Float32frombits(uint32(int32(n)-half+127) << 23)
	return float32(p*a) * b
}

// goOps is the reference implementation. It rounds products before it adds them (the conversions
// to float32 forbid fusing), so that every GOARCH computes the same bits.
type goOps struct{}
