// Package grad implements the inner loops of backward passes: of activations, softmax, norms,
// rotary positions and recurrent states. Elements have the same bits in every variant. Sums are
// in float64, in an order of the variant's own that depends only on the length.
package grad

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/vector"
)

// trainPiece is the number of elements per call of a kernel: some microseconds of work.
const trainPiece = 1 << 13

// SiLUGrad is the backward pass of gate·σ(gate)·up. It adds the gradients of gate and up to dgate
// and dup, given the gradient dy of the result. up and dup may both be nil, which means ones.
func (s *Kernels) SiLUGrad(dgate, dup, dy, gate, up []float32) {
	s.gateGrad(dgate, dup, dy, gate, up, false)
}

// GELUTanhGrad is SiLUGrad for the tanh form of GELU, with 2√(2/π)·(x + 0.044715·x³) as the
// argument of σ.
func (s *Kernels) GELUTanhGrad(dgate, dup, dy, gate, up []float32) {
	s.gateGrad(dgate, dup, dy, gate, up, true)
}

func (s *Kernels) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
	n := len(dgate)
	dy, gate = dy[:n], gate[:n]
	for at := 0; at < n; at += trainPiece {
		end := min(at+trainPiece, n)
		var du, u []float32
		if up != nil {
			du, u = dup[at:end], up[at:end]
		}
		s.ops.gateGrad(dgate[at:end], du, dy[at:end], gate[at:end], u, tanh)
	}
}

// SoftmaxGrad sets g = p·(g − mean)·scale. With mean = Σ p·g the result is the gradient of the
// logits of probabilities p.
func (s *Kernels) SoftmaxGrad(g, p []float32, mean, scale float32) {
	p = p[:len(g)]
	for at := 0; at < len(g); at += trainPiece {
		end := min(at+trainPiece, len(g))
		s.ops.softmaxGrad(g[at:end], p[at:end], [9]float32{mean, scale})
	}
}

// Normal sets y = (x − mean)·by·w, for one row of a norm.
func (s *Kernels) Normal(y, x, w []float32, mean, by float32) {
	if len(y) > 0 {
		s.ops.normal(y, x[:len(y)], w[:len(y)], [9]float32{mean, by})
	}
}

// Norm holds the mean of a row and the reciprocal By of its deviation, which both depend on the
// row. Centred reports whether the mean was subtracted.
type Norm struct {
	Mean, By float32
	Centred  bool
}

// NormGrad is the backward pass of Normal. It adds By·(h − mean(h) − z·mean(h·z)) to dx, where h
// = dy·w and z is the normalised row. The term mean(h) is left out unless Centred is set.
func (s *Kernels) NormGrad(dx, dy, x, w []float32, o Norm) {
	if len(dx) == 0 {
		return
	}
	dy, x, w = dy[:len(dx)], x[:len(dx)], w[:len(dx)]
	c := [9]float32{o.Mean, o.By}
	along, level := s.ops.normSums(dy, x, w, c)
	n := float64(len(dx))
	if o.Centred {
		c[2] = float32(level / n)
	}
	c[3] = float32(along / n * float64(o.By) * float64(o.By))
	s.ops.normGrad(dx, dy, x, w, c)
}

// NormWeightGrad adds dy·(x − mean)·by to dw.
func (s *Kernels) NormWeightGrad(dw, dy, x []float32, mean, by float32) {
	if len(dw) > 0 {
		s.ops.normWeight(dw, dy[:len(dw)], x[:len(dw)], [9]float32{mean, by})
	}
}

// Rotate rotates the pairs (a[i], b[i]) by the angles with the given cosines and sines, or by the
// negated angles if sign is −1.
func (s *Kernels) Rotate(a, b, cosine, sine []float32, sign float32) {
	if n := len(a); n > 0 {
		s.ops.rotateHalf(a, b[:n], cosine[:n], sine[:n], [9]float32{sign})
	}
}

// exponential returns e^-u. It clamps u where 1/(1 + e^-u) is 0 or 1 anyway.
func exponential(u float32) float32 {
	x := -u
	switch {
	case x > 88:
		x = 88
	case x < -88:
		x = -88
	}
	return vector.Exp(x)
}

func (goOps) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
	c1, c3 := float32(1), float32(0)
	if tanh {
		c1, c3 = 1.5957691216057308, 0.0713548162726
	}
	for i, g := range gate {
		square := float32(g * g)
		e := exponential(float32(g * (c1 + float32(c3*square))))
		s := 1 / (1 + e) // 1 - s is e·s, which is precise even if s is close to 1
		d := dy[i]
		if up != nil {
			dup[i] += float32(d * float32(g*s))
			d = float32(d * up[i])
		}
		slope := float32(s * (1 + float32(float32(g*float32(e*s))*(c1+float32(3*c3*square)))))
		dgate[i] += float32(d * slope)
	}
}

func (goOps) softmaxGrad(g, p []float32, c [9]float32) {
	for i, v := range p {
		g[i] = float32(v*(g[i]-c[0])) * c[1]
	}
}

func (goOps) normal(y, x, w []float32, c [9]float32) {
	for i, v := range x {
		y[i] = float32((v-c[0])*c[1]) * w[i]
	}
}

func (goOps) normSums(dy, x, w []float32, c [9]float32) (along, level float64) {
	for i, v := range x {
		h := float32(dy[i] * w[i])
		along += float64(float32(h * (v - c[0])))
		level += float64(h)
	}
	return along, level
}

func (goOps) normGrad(dx, dy, x, w []float32, c [9]float32) {
	for i, v := range x {
		dx[i] += float32(c[1] * (float32(dy[i]*w[i]) - c[2] - float32((v-c[0])*c[3])))
	}
}

func (goOps) normWeight(dw, dy, x []float32, c [9]float32) {
	for i, v := range x {
		dw[i] += float32(float32(dy[i]*(v-c[0])) * c[1])
	}
}

func (goOps) rotateHalf(a, b, cosine, sine []float32, c [9]float32) {
	for i, cos := range cosine {
		s, u, v := float32(c[0]*sine[i]), a[i], b[i]
		a[i] = float32(u*cos) - float32(v*s)
		b[i] = float32(v*cos) + float32(u*s)
	}
}

// Kernels are the gradient kernels of one variant. They are stateless and safe for concurrent
// use.
type Kernels struct{ ops ops }

// For returns the kernels of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v)} }

// goOps is the reference implementation.
type goOps struct{}

// ops is implemented by each variant. Slices have the same length, which is not 0. c holds the
// coefficients.
type ops interface {
	gateGrad(dgate, dup, dy, gate, up []float32, tanh bool)
	softmaxGrad(g, p []float32, c [9]float32)
	normal(y, x, w []float32, c [9]float32)
	normSums(dy, x, w []float32, c [9]float32) (along, level float64)
	normGrad(dx, dy, x, w []float32, c [9]float32)
	normWeight(dw, dy, x []float32, c [9]float32)
	rotateHalf(a, b, cosine, sine []float32, c [9]float32)
	deltaGrad(dkq, state, dstate, k, v []float32, decay float32) float64
}
