package meta

import "math"

// alibiSlopes returns the slopes of ALiBi biases. With n the largest power of two up to heads,
// head k of the first n has 2^(-8k/n). The others have every second slope of 2n heads.
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
