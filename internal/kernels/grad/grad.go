// Package grad has the inner loops of gradients: of activations, softmax, norms, rotary
// positions and states. All elements have the same bits in every variant; sums are float64, added up in an
// order of the variant's own that depends on the length alone.
package grad

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/vector"
)

// trainPiece is how many elements one call of a kernel gets: some microseconds of work.
const trainPiece = 1 << 13

// SiLUGrad is the reverse of gate·σ(gate)·up: it adds to dgate and dup, given the gradient
// dy of the result. up and dup may both be nil, which stands for ones.
func (s *Kernels) SiLUGrad(dgate, dup, dy, gate, up []float32) {
	s.gateGrad(dgate, dup, dy, gate, up, false)
}

// GELUTanhGrad is SiLUGrad for GELU with a hyperbolic tangent, 2√(2/π)·(x + 0.044715·x³)
// under σ.
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

// SoftmaxGrad sets g = p·(g − mean)·scale: with mean = Σ p·g the gradient of the logits of
// probabilities p.
func (s *Kernels) SoftmaxGrad(g, p []float32, mean, scale float32) {
	p = p[:len(g)]
	for at := 0; at < len(g); at += trainPiece {
		end := min(at+trainPiece, len(g))
		s.ops.softmaxGrad(g[at:end], p[at:end], [9]float32{mean, scale})
	}
}

// Normal sets y = (x − mean)·by·w, one row of a norm.
func (s *Kernels) Normal(y, x, w []float32, mean, by float32) {
	if len(y) > 0 {
		s.ops.normal(y, x[:len(y)], w[:len(y)], [9]float32{mean, by})
	}
}

// Norm is a row's mean and the reciprocal By of its deviation, which come from the row itself.
// Centred says that the mean was subtracted.
type Norm struct {
	Mean, By float32
	Centred  bool
}

// NormGrad is the reverse of Normal: it adds By·(h − mean(h) − z·mean(h·z)) to dx, with h = dy·w
// and z the normalised row; mean(h) only if Centred.
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

// Rotate turns the pairs (a[i], b[i]) by angles with the given cosines and sines, or
// back where sign is −1.
func (s *Kernels) Rotate(a, b, cosine, sine []float32, sign float32) {
	if n := len(a); n > 0 {
		s.ops.rotateHalf(a, b[:n], cosine[:n], sine[:n], [9]float32{sign})
	}
}

// exponential is e^-u, u cut off where 1/(1 + e^-u) is 0 or 1 anyhow.
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
		s := 1 / (1 + e) // and 1 - s is e·s, which keeps its precision where s is close to 1
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

// Kernels are the loops of one variant. They have no state: any number of goroutines may use them at
// once.
type Kernels struct{ ops ops }

// For returns the loops of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v)} }

// goOps is the reference.
type goOps struct{}

// ops is what a variant implements. Lengths are equal and not 0; c are the constants of a call.
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
