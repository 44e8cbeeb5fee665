package tensor

import "math"

// pieces is the number of elements of an activation that are processed at a time, on the stack.
const pieces = 512

// unary applies an operation element by element. forward sets dst from x. backward adds to dx,
// given the gradient, x and the result.
func (tp *Tape) unary(name string, x *Tensor, forward func(dst, x []float32), backward func(dx, grad, x, y []float32)) *Tensor {
	if !tp.ready(name, x) {
		return tp.void()
	}
	out := tp.result(x.shape, x)
	tp.ranges(len(x.data), func(lo, hi int) { forward(out.data[lo:hi], x.data[lo:hi]) })
	return tp.record(out, func(grad []float32) {
		g := tp.gradient(x)
		tp.ranges(len(g), func(lo, hi int) { backward(g[lo:hi], grad[lo:hi], x.data[lo:hi], out.data[lo:hi]) })
	})
}

// SiLU computes x·σ(x).
func (tp *Tape) SiLU(x *Tensor) *Tensor {
	return tp.unary("silu", x,
		func(dst, x []float32) { tp.set.Vector.Gate(dst, x, nil, 1, 0) },
		func(dx, grad, x, _ []float32) {
			tp.sigmoids(x, 1, 0, func(at int, sigma, rest []float32) {
				for i, s := range sigma {
					v := x[at+i]
					dx[at+i] += grad[at+i] * s * (1 + v*rest[i])
				}
			})
		})
}

// sigmoids calls f with pieces of σ(x·(c1 + c3·x²)) and of 1-σ, which keeps its precision where σ
// is close to 1.
func (tp *Tape) sigmoids(x []float32, c1, c3 float32, f func(at int, sigma, rest []float32)) {
	var buf, lack [pieces]float32
	for at := 0; at < len(x); at += pieces {
		part := x[at:min(at+pieces, len(x))]
		e := buf[:len(part)]
		for i, v := range part {
			e[i] = -v * (c1 + c3*v*v)
		}
		tp.set.Vector.ExpSum(e, 0)
		rest := lack[:len(part)]
		for i, v := range e {
			e[i] = 1 / (1 + v)
			if rest[i] = 1 - e[i]; v < 1 {
				rest[i] = v * e[i]
			}
		}
		f(at, e, rest)
	}
}

// Sigmoid computes 1/(1 + exp(-x)).
func (tp *Tape) Sigmoid(x *Tensor) *Tensor {
	return tp.unary("sigmoid", x,
		func(dst, x []float32) {
			tp.sigmoids(x, 1, 0, func(at int, sigma, _ []float32) { copy(dst[at:], sigma) })
		},
		func(dx, grad, _, y []float32) {
			for i, s := range y {
				dx[i] += grad[i] * s * (1 - s)
			}
		})
}

// ReLU computes max(x, 0). Its gradient at 0 is 0. NaN stays NaN.
func (tp *Tape) ReLU(x *Tensor) *Tensor {
	out := tp.unary("relu", x,
		func(dst, x []float32) {
			for i, v := range x {
				if v < 0 {
					v = 0
				}
				dst[i] = v
			}
		},
		func(dx, grad, x, _ []float32) {
			for i, v := range x {
				if !(v <= 0) {
					dx[i] += grad[i]
				}
			}
		})
	if out.widen(x) {
		for i, v := range x.wide {
			out.wide[i] = max(v, 0)
		}
	}
	return out
}

// Tanh computes the hyperbolic tangent.
func (tp *Tape) Tanh(x *Tensor) *Tensor {
	return tp.unary("tanh", x,
		func(dst, x []float32) {
			for i, v := range x {
				dst[i] = float32(math.Tanh(float64(v)))
			}
		},
		func(dx, grad, _, y []float32) {
			for i, v := range y {
				dx[i] += grad[i] * (1 - v*v)
			}
		})
}

// GELU computes x·Φ(x), where Φ is the normal distribution function.
func (tp *Tape) GELU(x *Tensor) *Tensor {
	phi := func(v float64) float64 { return 0.5 * math.Erfc(-v/math.Sqrt2) }
	return tp.unary("gelu", x,
		func(dst, x []float32) {
			for i, v := range x {
				dst[i] = float32(float64(v) * phi(float64(v)))
			}
		},
		func(dx, grad, x, _ []float32) {
			for i, v := range x {
				v := float64(v)
				density := math.Exp(-v*v/2) / math.Sqrt(2*math.Pi)
				dx[i] += grad[i] * float32(phi(v)+v*density)
			}
		})
}

// GELUTanh computes GELU's approximation by a hyperbolic tangent (GPT-2's gelu_new): x·σ(2√(2/π)·(x
// + 0.044715·x³)).
func (tp *Tape) GELUTanh(x *Tensor) *Tensor {
	const c1 = 1.5957691216057308 // 2√(2/π)
	const c3 = 0.044715 * c1
	return tp.unary("gelu_tanh", x,
		func(dst, x []float32) { tp.set.Vector.Gate(dst, x, nil, c1, c3) },
		func(dx, grad, x, _ []float32) {
			tp.sigmoids(x, c1, c3, func(at int, sigma, rest []float32) {
				for i, s := range sigma {
					v := x[at+i]
					dx[at+i] += grad[at+i] * s * (1 + v*rest[i]*(c1+3*c3*v*v))
				}
			})
		})
}

// Scale returns x·by.
func (tp *Tape) Scale(x *Tensor, by float32) *Tensor {
	return tp.unary("scale", x,
		func(dst, x []float32) {
			for i, v := range x {
				dst[i] = v * by
			}
		},
		func(dx, grad, _, _ []float32) {
			for i, v := range grad {
				dx[i] += v * by
			}
		})
}

// SwiGLU computes SiLU(gate)·up, element by element.
func (tp *Tape) SwiGLU(gate, up *Tensor) *Tensor {
	if !tp.ready("swiglu", gate, up) {
		return tp.void()
	}
	if !gate.is(up.shape...) {
		return tp.fail("swiglu: gate has shape %v, up %v, want equal shapes", gate, up)
	}
	out := tp.result(gate.shape, gate, up)
	tp.ranges(len(out.data), func(lo, hi int) {
		tp.set.Vector.Gate(out.data[lo:hi], gate.data[lo:hi], up.data[lo:hi], 1, 0)
	})
	return tp.record(out, func(grad []float32) {
		gg, gu := tp.gradient(gate), tp.gradient(up)
		tp.ranges(len(grad), func(lo, hi int) {
			x, u, g := gate.data[lo:hi], up.data[lo:hi], grad[lo:hi]
			tp.sigmoids(x, 1, 0, func(at int, sigma, rest []float32) {
				if gg != nil {
					dx := gg[lo+at : lo+at+len(sigma)]
					for i, s := range sigma {
						dx[i] += g[at+i] * u[at+i] * s * (1 + x[at+i]*rest[i])
					}
				}
				if gu != nil {
					du := gu[lo+at : lo+at+len(sigma)]
					for i, s := range sigma {
						du[i] += g[at+i] * x[at+i] * s
					}
				}
			})
		})
	})
}
