package optim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/heftai/heft/internal/kernels"
)

// ErrNotFinite is returned by [ClipNormFinite] for an infinite or NaN norm.
var ErrNotFinite = errors.New("optim: the norm of the gradients is not finite")

// Norm returns the p-norm of all gradients together. p may be infinite. It skips parameters without
// a gradient. It is NaN if a gradient outside memory cannot be read; see [GradNorm].
func Norm(params []Param, p float64) float64 {
	n, err := GradNorm(params, p)
	if err != nil {
		return math.NaN()
	}
	return n
}

// GradNorm is [Norm] that returns an error if a gradient outside memory cannot be read.
func GradNorm(params []Param, p float64) (float64, error) {
	norms, err := GradNorms(params, p)
	if err != nil {
		return 0, err
	}
	return JoinNorms(norms, p), nil
}

// GradNorms returns the p-norm of each gradient by the index of its parameter.
func GradNorms(params []Param, p float64) (map[int]float64, error) {
	norms := map[int]float64{}
	for i, x := range params {
		err := withGrad(x, false, func(g []float32) error {
			norms[i] = arrayNorm(g, p)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("optim: norm: parameter %d: %w", i, err)
		}
	}
	return norms, nil
}

// JoinNorms returns the p-norm of all gradients together from the results of [GradNorms].
func JoinNorms(norms map[int]float64, p float64) float64 {
	all := make([]float64, 0, len(norms))
	for _, i := range slices.Sorted(maps.Keys(norms)) {
		all = append(all, norms[i])
	}
	return float64(float32(norm(all, p)))
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
	set, _ := kernels.Select("") // the default always exists
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
// scaling. It applies an infinite or NaN norm like any other, as torch does. If a gradient
// outside memory cannot be read, it changes nothing and returns NaN; see [ClipGradNorm].
func ClipNorm(params []Param, limit, p float64) float64 {
	n, err := ClipGradNorm(params, limit, p)
	if err != nil {
		return math.NaN()
	}
	return n
}

// CheckLimit returns an error if limit cannot bound a gradient: if it is NaN, or negative, which
// would reverse gradients.
func CheckLimit(limit float64) error {
	if limit >= 0 {
		return nil
	}
	return fmt.Errorf("optim: clip: got the limit %v, want 0 or more", limit)
}

// ClipGradNorm is [ClipNorm] that returns an error if a gradient outside memory cannot be read,
// or if limit is negative or NaN.
func ClipGradNorm(params []Param, limit, p float64) (float64, error) {
	if err := CheckLimit(limit); err != nil {
		return 0, err
	}
	n, err := GradNorm(params, p)
	if err != nil {
		return 0, err
	}
	LimitGrads(params, limit, n)
	return n, nil
}

// LimitGrads scales the gradients of params, whose norm is n, by min(1, limit/(n+1e-6)).
func LimitGrads(params []Param, limit, n float64) {
	// Compute in float32: there an infinite norm gives 0 and NaN stays NaN.
	scale := min(float32(1), float32(limit)/(float32(n)+1e-6))
	set, _ := kernels.Select("")
	for _, x := range params {
		if scale == 1 {
			break
		}
		if s, ok := x.(StoredGrad); ok && x.Grad() == nil {
			s.ScaleGrad(scale) // applied when the step acquires it
			continue
		}
		g := x.Grad()
		inParts(len(g), func(lo, hi int) { set.Vector.ScaleShift(g[lo:hi], scale, 0) })
	}
}

// ClipNormFinite is [ClipNorm], but if the norm is infinite or NaN it changes nothing and returns
// [ErrNotFinite]. It also returns an error if a gradient outside memory cannot be read.
func ClipNormFinite(params []Param, limit, p float64) (float64, error) {
	n, err := GradNorm(params, p)
	if err != nil {
		return 0, err
	}
	if math.IsInf(n, 0) || math.IsNaN(n) {
		return n, ErrNotFinite
	}
	return ClipGradNorm(params, limit, p)
}

// ClipValue limits every gradient to ±limit. NaN stays NaN. It returns an error if a gradient
// outside memory cannot be read or written, or if limit is negative or NaN.
func ClipValue(params []Param, limit float64) error {
	if err := CheckLimit(limit); err != nil {
		return err
	}
	bound := float32(limit)
	for i, x := range params {
		err := withGrad(x, true, func(g []float32) error {
			for i, v := range g {
				g[i] = max(-bound, min(bound, v))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("optim: clip: parameter %d: %w", i, err)
		}
	}
	return nil
}
