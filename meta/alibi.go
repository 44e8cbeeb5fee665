package meta

import "math"

// alibiSlopes returns the slopes of biases by distance (ALiBi): 2^(-8k/n) for the largest power of two n that is not
// above heads, and for the others every second one of twice as many.
func alibiSlopes(heads int) []float32 {
	n := 1
	for 2*n <= heads {
		n *= 2
	}
	slopes := make([]float32, heads)
	for i := range slopes {
		exponent := -8 * float64(i+1) / float64(n)
		if i >= n {
			exponent = -4 * float64(2*(i-n)+1) / float64(n)
		}
		slopes[i] = float32(math.Exp2(exponent))
	}
	return slopes
}
