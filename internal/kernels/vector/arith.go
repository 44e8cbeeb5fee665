package vector

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// AddScaled adds x·by to y.
func (s *Kernels) AddScaled(y, x []float32, by float32) {
	x = x[:len(y)]
	for at := 0; at < len(y); at += trainPiece {
		end := min(at+trainPiece, len(y))
		s.ops.addScaled(y[at:end], x[at:end], [9]float32{by})
	}
}

// Sum sets y = a + b. y may be a or b.
func (s *Kernels) Sum(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for at := 0; at < len(y); at += trainPiece {
		end := min(at+trainPiece, len(y))
		s.ops.sum(y[at:end], a[at:end], b[at:end])
	}
}

// ScaleShift sets x = x·by − shift.
func (s *Kernels) ScaleShift(x []float32, by, shift float32) {
	for at := 0; at < len(x); at += trainPiece {
		s.ops.scaleShift(x[at:min(at+trainPiece, len(x))], [9]float32{by, shift})
	}
}

// RoundBFloat16 rounds x in place to the nearest bfloat16, ties to even. Elements stay float32.
func (s *Kernels) RoundBFloat16(x []float32) {
	for at := 0; at < len(x); at += trainPiece {
		s.ops.round(x[at:min(at+trainPiece, len(x))])
	}
}

// Dot64 returns Σ a·b in float64.
func (s *Kernels) Dot64(a, b []float32) float64 {
	b = b[:len(a)]
	sum := 0.0
	for at := 0; at < len(a); at += trainPiece {
		end := min(at+trainPiece, len(a))
		sum += s.ops.dot64(a[at:end], b[at:end])
	}
	return sum
}

// The Go variant. Like the others, it rounds products before it adds them.

func (goOps) addScaled(y, x []float32, c [9]float32) {
	for i := range y {
		y[i] += float32(c[0] * x[i])
	}
}

func (goOps) sum(y, a, b []float32) {
	for i := range y {
		y[i] = a[i] + b[i]
	}
}

func (goOps) scaleShift(x []float32, c [9]float32) {
	for i, v := range x {
		x[i] = float32(v*c[0]) - c[1]
	}
}

func (goOps) round(x []float32) {
	for i, v := range x {
		x[i] = mat.FromBFloat16(mat.ToBFloat16(v))
	}
}

func (goOps) dot64(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}

// arith is implemented by each variant for the operations above. Slices have the same length,
// which is not 0. c holds the coefficients. Elements have the same bits in every variant. Sums
// are in float64, in an order of the variant's own that depends only on the length.
type arith interface {
	addScaled(y, x []float32, c [9]float32)
	sum(y, a, b []float32)
	scaleShift(x []float32, c [9]float32)
	round(x []float32)
	dot64(a, b []float32) float64
}

// trainPiece is the number of elements per call of a kernel: some microseconds of work.
const trainPiece = 1 << 13
