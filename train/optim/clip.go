package optim

import (
	"errors"
	"math"

	"github.com/heftai/heft/internal/kernels"
)

// ErrNotFinite is what [ClipNorm] returns for a norm that is infinite or NaN, if asked.
var ErrNotFinite = errors.New("optim: the norm of the gradients is not finite")

// Norm is the p-norm of all gradients together; p may be infinite. Parameters without
// a gradient are passed over.
func Norm(params []Param, p float64) float64 {
	var norms []float64
	for _, x := range params {
		if g := x.Grad(); g != nil {
			norms = append(norms, arrayNorm(g, p))
		}
	}
	return float64(float32(norm(norms, p)))
}

// WeightNorm is the p-norm of all parameters' numbers together. It is NaN if the numbers of a
// [Stored] parameter cannot be read.
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

// arrayNorm is the p-norm of one array, rounded to float32.
func arrayNorm(x []float32, p float64) float64 {
	if p != 2 {
		return float64(float32(norm(x, p)))
	}
	set, _ := kernels.Select("") // there is always one
	return float64(float32(math.Sqrt(squareSum(set, x))))
}

// squareSum is the sum of the squares of x: of parts of one size, whatever the threads, which
// are added up in order.
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

// ClipNorm scales all gradients by min(1, limit/(norm+1e-6)) and returns their p-norm
// from before. An infinite or NaN norm is applied like any other, as torch does.
func ClipNorm(params []Param, limit, p float64) float64 {
	n := Norm(params, p)
	// In float32, where an infinite norm gives 0 and NaN stays NaN.
	scale := min(float32(1), float32(limit)/(float32(n)+1e-6))
	set, _ := kernels.Select("")
	for _, x := range params {
		if g := x.Grad(); scale != 1 {
			inParts(len(g), func(lo, hi int) { set.Vector.ScaleShift(g[lo:hi], scale, 0) })
		}
	}
	return n
}

// ClipNormFinite is ClipNorm that changes nothing and returns [ErrNotFinite] where the
// norm is infinite or NaN.
func ClipNormFinite(params []Param, limit, p float64) (float64, error) {
	if n := Norm(params, p); math.IsInf(n, 0) || math.IsNaN(n) {
		return n, ErrNotFinite
	}
	return ClipNorm(params, limit, p), nil
}

// ClipValue bounds every gradient to ±limit. NaN stays NaN.
func ClipValue(params []Param, limit float64) {
	bound := float32(limit)
	for _, x := range params {
		g := x.Grad()
		for i, v := range g {
			g[i] = max(-bound, min(bound, v))
		}
	}
}
