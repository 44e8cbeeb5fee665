package kernels

import "math"

// The loops of training. Those of elements give the same bits in every variant; sums are
// float64, added up in an order of the variant's own that depends on the length alone.

// trainer is what a variant implements for training. Lengths are equal and not 0; c are
// the constants of a call.
type trainer interface {
	addScaled(y, x []float32, c [9]float32)
	sum(y, a, b []float32)
	scaleShift(x []float32, c [9]float32)
	round(x []float32)
	dot64(a, b []float32) float64
	gateGrad(dgate, dup, dy, gate, up []float32, tanh bool)
	softmaxGrad(g, p []float32, c [9]float32)
	normal(y, x, w []float32, c [9]float32)
	normSums(dy, x, w []float32, c [9]float32) (along, level float64)
	normGrad(dx, dy, x, w []float32, c [9]float32)
	normWeight(dw, dy, x []float32, c [9]float32)
	turnHalves(a, b, cosine, sine []float32, c [9]float32)
	adam(w, m, v, g []float32, c [9]float32)
	momentum(w, buf, g []float32, c [9]float32)
}

// trainPiece is how many elements one call of a kernel gets: some microseconds of work.
const trainPiece = 1 << 13

// AddScaled adds x·by to y.
func (s *Set) AddScaled(y, x []float32, by float32) {
	x = x[:len(y)]
	for at := 0; at < len(y); at += trainPiece {
		end := min(at+trainPiece, len(y))
		s.ops.addScaled(y[at:end], x[at:end], [9]float32{by})
	}
}

// Sum sets y = a + b. y may be a or b.
func (s *Set) Sum(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for at := 0; at < len(y); at += trainPiece {
		end := min(at+trainPiece, len(y))
		s.ops.sum(y[at:end], a[at:end], b[at:end])
	}
}

// ScaleShift sets x = x·by − shift.
func (s *Set) ScaleShift(x []float32, by, shift float32) {
	for at := 0; at < len(x); at += trainPiece {
		s.ops.scaleShift(x[at:min(at+trainPiece, len(x))], [9]float32{by, shift})
	}
}

// RoundBFloat16 rounds x to the nearest bfloat16, ties to even; it stays float32.
func (s *Set) RoundBFloat16(x []float32) {
	for at := 0; at < len(x); at += trainPiece {
		s.ops.round(x[at:min(at+trainPiece, len(x))])
	}
}

// Dot64 is Σ a·b in float64.
func (s *Set) Dot64(a, b []float32) float64 {
	b = b[:len(a)]
	sum := 0.0
	for at := 0; at < len(a); at += trainPiece {
		end := min(at+trainPiece, len(a))
		sum += s.ops.dot64(a[at:end], b[at:end])
	}
	return sum
}

// SiLUGrad is the reverse of gate·σ(gate)·up: it adds to dgate and dup, given the gradient
// dy of the result. up and dup may both be nil, which stands for ones.
func (s *Set) SiLUGrad(dgate, dup, dy, gate, up []float32) {
	s.gateGrad(dgate, dup, dy, gate, up, false)
}

// GELUTanhGrad is SiLUGrad for GELU with a hyperbolic tangent, 2√(2/π)·(x + 0.044715·x³)
// under σ.
func (s *Set) GELUTanhGrad(dgate, dup, dy, gate, up []float32) {
	s.gateGrad(dgate, dup, dy, gate, up, true)
}

func (s *Set) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
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
func (s *Set) SoftmaxGrad(g, p []float32, mean, scale float32) {
	p = p[:len(g)]
	for at := 0; at < len(g); at += trainPiece {
		end := min(at+trainPiece, len(g))
		s.ops.softmaxGrad(g[at:end], p[at:end], [9]float32{mean, scale})
	}
}

// Normal sets y = (x − mean)·by·w, one row of a norm.
func (s *Set) Normal(y, x, w []float32, mean, by float32) {
	if len(y) > 0 {
		s.ops.normal(y, x[:len(y)], w[:len(y)], [9]float32{mean, by})
	}
}

// NormGrad is the reverse of Normal of a row whose mean and reciprocal deviation by come
// from x itself: it adds by·(h − mean(h) − z·mean(h·z)) to dx, with h = dy·w and z the
// normalised row; mean(h) only where centred.
func (s *Set) NormGrad(dx, dy, x, w []float32, mean, by float32, centred bool) {
	if len(dx) == 0 {
		return
	}
	dy, x, w = dy[:len(dx)], x[:len(dx)], w[:len(dx)]
	c := [9]float32{mean, by}
	along, level := s.ops.normSums(dy, x, w, c)
	n := float64(len(dx))
	if centred {
		c[2] = float32(level / n)
	}
	c[3] = float32(along / n * float64(by) * float64(by))
	s.ops.normGrad(dx, dy, x, w, c)
}

// NormWeightGrad adds dy·(x − mean)·by to dw.
func (s *Set) NormWeightGrad(dw, dy, x []float32, mean, by float32) {
	if len(dw) > 0 {
		s.ops.normWeight(dw, dy[:len(dw)], x[:len(dw)], [9]float32{mean, by})
	}
}

// TurnHalves turns the pairs (a[i], b[i]) by angles with the given cosines and sines, or
// back where sign is −1.
func (s *Set) TurnHalves(a, b, cosine, sine []float32, sign float32) {
	if n := len(a); n > 0 {
		s.ops.turnHalves(a, b[:n], cosine[:n], sine[:n], [9]float32{sign})
	}
}

// AdamStep are the numbers of a step of Adam on weights w with means m and v, by gradients
// g: with x = w·Shrink and d = Sign·g + Decay·x, m goes Near of the way to d, v = Keep·v +
// Take·d², and w = x − Size·m/(√v/Root + Eps).
type AdamStep struct{ Shrink, Decay, Sign, Near, Keep, Take, Size, Root, Eps float32 }

// Adam takes a step.
func (s *Set) Adam(w, m, v, g []float32, a AdamStep) {
	n := len(w)
	m, v, g = m[:n], v[:n], g[:n]
	c := [9]float32{a.Shrink, a.Decay, a.Sign, a.Near, a.Keep, a.Take, a.Size, a.Root, a.Eps}
	for at := 0; at < n; at += trainPiece {
		end := min(at+trainPiece, n)
		s.ops.adam(w[at:end], m[at:end], v[at:end], g[at:end], c)
	}
}

// MomentumStep are the numbers of a step of descent on weights w with a buffer: with d =
// Sign·g + Decay·w, buf = Keep·buf + Take·d, and w goes back by LR of it; with Nesterov of
// d + Keep·buf.
type MomentumStep struct {
	LR, Decay, Sign, Keep, Take float32
	Nesterov                    bool
}

// Momentum takes a step.
func (s *Set) Momentum(w, buf, g []float32, a MomentumStep) {
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

// The Go variant. Products are rounded before they are added, as everywhere.

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
		x[i] = FromBFloat16(ToBFloat16(v))
	}
}

func (goOps) dot64(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}

// sigmoid32 is 1/(1 + e^-u), u cut off where the result is 0 or 1 anyhow.
func sigmoid32(u float32) float32 {
	x := -u
	switch {
	case x > 88:
		x = 88
	case x < -88:
		x = -88
	}
	return 1 / (1 + exp32(x))
}

func (goOps) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
	c1, c3 := float32(1), float32(0)
	if tanh {
		c1, c3 = 1.5957691216057308, 0.0713548162726
	}
	for i, g := range gate {
		square := float32(g * g)
		s := sigmoid32(float32(g * (c1 + float32(c3*square))))
		d := dy[i]
		if up != nil {
			dup[i] += float32(d * float32(g*s))
			d = float32(d * up[i])
		}
		slope := float32(s * (1 + float32(float32(g*(1-s))*(c1+float32(3*c3*square)))))
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

func (goOps) turnHalves(a, b, cosine, sine []float32, c [9]float32) {
	for i, cos := range cosine {
		s, u, v := float32(c[0]*sine[i]), a[i], b[i]
		a[i] = float32(u*cos) - float32(v*s)
		b[i] = float32(v*cos) + float32(u*s)
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
