// Package optimizer implements the steps of optimizers in one pass over weights, state and
// gradients. All variants compute the same bits.
package optimizer

import (
	"math"

	"github.com/heftai/heft/internal/kernels/isa"
)

// AdamStep holds the coefficients of an Adam step on weights w with moments m and v and gradients
// g. With x = w·Shrink and d = Sign·g + Decay·x, the step sets m += Near·(d − m), v = Keep·v +
// Take·d² and w = x − Size·m/(√v/Root + Eps).
type AdamStep struct{ Shrink, Decay, Sign, Near, Keep, Take, Size, Root, Eps float32 }

// Adam does one step.
func (s *Kernels) Adam(w, m, v, g []float32, a AdamStep) {
	n := len(w)
	m, v, g = m[:n], v[:n], g[:n]
	c := [9]float32{a.Shrink, a.Decay, a.Sign, a.Near, a.Keep, a.Take, a.Size, a.Root, a.Eps}
	for at := 0; at < n; at += trainPiece {
		end := min(at+trainPiece, n)
		s.ops.adam(w[at:end], m[at:end], v[at:end], g[at:end], c)
	}
}

// MomentumStep holds the coefficients of a step of gradient descent on weights w with a momentum
// buffer. With d = Sign·g + Decay·w, the step sets buf = Keep·buf + Take·d and w −= LR·buf, or
// with Nesterov w −= LR·(d + Keep·buf).
type MomentumStep struct {
	LR, Decay, Sign, Keep, Take float32
	Nesterov                    bool
}

// Momentum does one step.
func (s *Kernels) Momentum(w, buf, g []float32, a MomentumStep) {
	n := len(w)
	buf, g = buf[:n], g[:n]
	c := [9]float32{a.LR, a.Decay, a.Sign, a.Keep, a.Take}
	if a.Nesterov {
		c[5] = 1
	}
	for at := 0; at < n; at += trainPiece {
		end := min(at+trainPiece, n)
		s.ops.momentum(w[at:end], buf[at:end], g[at:end], c)
	}
}

func (goOps) adam(w, m, v, g []float32, c [9]float32) {
	for i := range w {
		x := float32(w[i] * c[0])
		d := float32(c[2]*g[i]) + float32(c[1]*x)
		mean := m[i] + float32(c[3]*(d-m[i]))
		square := float32(c[4]*v[i]) + float32(float32(c[5]*d)*d)
		m[i], v[i] = mean, square
		w[i] = x - float32(c[6]*mean)/(float32(math.Sqrt(float64(square)))/c[7]+c[8])
	}
}

func (goOps) momentum(w, buf, g []float32, c [9]float32) {
	for i := range w {
		d := float32(c[2]*g[i]) + float32(c[1]*w[i])
		b := float32(c[3]*buf[i]) + float32(c[4]*d)
		buf[i] = b
		if c[5] != 0 {
			b = d + float32(c[3]*b)
		}
		w[i] -= float32(c[0] * b)
	}
}

// Kernels are the optimizer kernels of one variant. They are stateless and safe for concurrent
// use.
type Kernels struct{ ops ops }

// For returns the kernels of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v)} }

// goOps is the reference implementation.
type goOps struct{}

// ops is implemented by each variant. Slices have the same length, which is not 0. c holds the
// coefficients.
type ops interface {
	adam(w, m, v, g []float32, c [9]float32)
	momentum(w, buf, g []float32, c [9]float32)
}

// trainPiece is the number of elements per call of a kernel: some microseconds of work.
const trainPiece = 1 << 13
