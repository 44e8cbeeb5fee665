package optim

import (
	"errors"
	"math"

	"github.com/heftai/heft/internal/kernels"
)

// ErrNotFinite is the error of [ClipNormFinite] for an infinite or NaN norm.
var ErrNotFinite = errors.New("optim: the norm of the gradients is not finite")

// Norm returns the p-norm of all gradients together. p may be infinite. It skips parameters without
// a gradient.
func Norm(params []Param, p float64) float64 {
	var norms []float64
	for _, x := range params {
		if g := x.Grad(); g != nil {
			norms = append(norms, arrayNorm(g, p))
		}
	}
	return float64(float32(norm(norms, p)))
}

// WeightNorm returns the p-norm of the values of all parameters together. It is NaN if the values
// of a [Stored] parameter cannot be read.
func WeightNorm(params []Param, p float64) float64 {
	var norms []float64
	for _, x := range params {
		if s, ok := x.(Stored); ok {
			values, err := s.Acquire(false)
			if err != nil {
				return math.NaN()
			}
			norms = append(norms, arrayNorm(values, p))
			if s.Release(false) != nil {
				return math.NaN()
			}
		} else if w := x.Data(); w != nil {
			norms = append(norms, arrayNorm(w, p))
		}
	}
	return float64(float32(norm(norms, p)))
}

// arrayNorm returns the p-norm of one array, rounded to float32.
func arrayNorm(x []float32, p float64) float64 {
	if p != 2 {
		return float64(float32(norm(x, p)))
	}
	set, _ := kernels.Select("") // there is always one
	return float64(float32(math.Sqrt(squareSum(set, x))))
}

// squareSum returns the sum of the squares of x. It adds up parts of a fixed size in order, so the
// result does not depend on the number of threads.
func squareSum(set *kernels.Set, x []float32) float64 {
	sums := make([]float64, (len(x)+share-1)/share)
	inParts(len(x), func(lo, hi int) {
		for ; lo < hi; lo += share {
			part := x[lo:min(lo+share, hi)]
			sums[lo/share] = set.Vector.Dot64(part, part)
		}
	})
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return sum
}

func norm[F float32 | float64](x []F, p float64) float64 {
	var sum float64
	switch {
	case math.IsInf(p, 1):
		for _, v := range x {
			sum = max(sum, math.Abs(float64(v)))
		}
		return sum
	case math.IsInf(p, -1):
		if len(x) == 0 {
			return 0
		}
		sum = math.Inf(1)
		for _, v := range x {
			sum = min(sum, math.Abs(float64(v)))
		}
		return sum
	case p == 0:
		for _, v := range x {
			if v != 0 {
				sum++
			}
		}
		return sum
	case p == 1:
		for _, v := range x {
			sum += math.Abs(float64(v))
		}
		return sum
	case p == 2:
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		return math.Sqrt(sum)
	}
	for _, v := range x {
		sum += math.Pow(math.Abs(float64(v)), p)
	}
	return math.Pow(sum, 1/p)
}

// ClipNorm scales all gradients by min(1, limit/(norm+1e-6)) and returns their p-norm before
// scaling. It applies an infinite or NaN norm like any other, as torch does.
func ClipNorm(params []Param, limit, p float64) float64 {
	n := Norm(params, p)
	// Compute in float32: there an infinite norm gives 0 and NaN stays NaN.
	scale := min(float32(1), float32(limit)/(float32(n)+1e-6))
	set, _ := kernels.Select("")
	for _, x := range params {
		if g := x.Grad(); scale != 1 {
			inParts(len(g), func(lo, hi int) { set.Vector.ScaleShift(g[lo:hi], scale, 0) })
		}
	}
	return n
}

// ClipNormFinite is [ClipNorm], but if the norm is infinite or NaN it changes nothing and returns
// [ErrNotFinite].
func ClipNormFinite(params []Param, limit, p float64) (float64, error) {
	if n := Norm(params, p); math.IsInf(n, 0) || math.IsNaN(n) {
		return n, ErrNotFinite
	}
	return ClipNorm(params, limit, p), nil
}

// ClipValue limits every gradient to ±limit. NaN stays NaN.
func ClipValue(params []Param, limit float64) {
	bound := float32(limit)
	for _, x := range params {
		g := x.Grad()
		for i, v := range g {
			g[i] = max(-bound, min(bound, v))
		}
	}
}
