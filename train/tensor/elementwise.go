package tensor

import "math"

// mapped applies a function element by element, in float64. slope returns the derivative of the
// result with respect to x, given both, times the result's gradient g.
func (tp *Tape) mapped(name string, x *Tensor, f func(x float64) float64, slope func(g, x, y float64) float64) *Tensor {
	return tp.unary(name, x,
		func(dst, x []float32) {
			for i, v := range x {
				dst[i] = float32(f(float64(v)))
			}
		},
		func(dx, grad, x, y []float32) {
			for i, g := range grad {
				dx[i] += float32(slope(float64(g), float64(x[i]), float64(y[i])))
			}
		})
}

// Exp computes the exponential.
func (tp *Tape) Exp(x *Tensor) *Tensor {
	return tp.mapped("exp", x, math.Exp, func(g, _, y float64) float64 { return g * y })
}

// Log computes the natural logarithm: -Inf at 0, NaN below.
func (tp *Tape) Log(x *Tensor) *Tensor {
	return tp.mapped("log", x, math.Log, func(g, x, _ float64) float64 { return g / x })
}

// Sqrt computes the square root. Its slope at 0 is infinite; a gradient of 0 there becomes NaN.
func (tp *Tape) Sqrt(x *Tensor) *Tensor {
	return tp.mapped("sqrt", x, math.Sqrt, func(g, _, y float64) float64 { return g / (2 * y) })
}

// Neg returns -x.
func (tp *Tape) Neg(x *Tensor) *Tensor {
	return tp.mapped("neg", x, func(x float64) float64 { return -x }, func(g, _, _ float64) float64 { return -g })
}

// Abs returns the absolute value. Its gradient at 0 is 0.
func (tp *Tape) Abs(x *Tensor) *Tensor {
	return tp.mapped("abs", x, math.Abs, func(g, x, _ float64) float64 { return g * sign(x) })
}

// sign returns -1, 0 or 1, and 0 for NaN, as torch's sgn.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// Clamp limits x to [lo, hi]. An infinite limit means none. Elements at a limit or beyond it get
// no gradient, as in torch 2.15. NaN stays NaN. If lo exceeds hi, all elements become hi.
func (tp *Tape) Clamp(x *Tensor, lo, hi float32) *Tensor {
	return tp.mapped("clamp", x,
		func(x float64) float64 { return min(max(x, float64(lo)), float64(hi)) },
		func(g, x, _ float64) float64 {
			below := x > float64(lo) || math.IsInf(float64(lo), -1)
			above := x < float64(hi) || math.IsInf(float64(hi), 1)
			if below && above && x == x {
				return g
			}
			return 0
		})
}

// LogSigmoid computes log(σ(x)) without overflow.
func (tp *Tape) LogSigmoid(x *Tensor) *Tensor {
	return tp.mapped("log_sigmoid", x, logSigmoid, func(g, x, _ float64) float64 { return g * sigmoid(-x) })
}

func logSigmoid(x float64) float64 { return min(x, 0) - math.Log1p(math.Exp(-math.Abs(x))) }

func sigmoid(x float64) float64 {
	if e := math.Exp(-math.Abs(x)); x < 0 {
		return e / (1 + e)
	} else {
		return 1 / (1 + e)
	}
}

// Softplus computes log(1 + exp(beta·x))/beta, and x itself where beta·x exceeds threshold. 0 means
// torch's defaults, beta 1 and threshold 20.
func (tp *Tape) Softplus(x *Tensor, beta, threshold float64) *Tensor {
	if beta == 0 {
		beta = 1
	}
	if threshold == 0 {
		threshold = 20
	}
	return tp.mapped("softplus", x,
		func(x float64) float64 {
			if x*beta > threshold {
				return x
			}
			return math.Log1p(math.Exp(x*beta)) / beta
		},
		func(g, x, _ float64) float64 {
			if x*beta > threshold {
				return g
			}
			return g * sigmoid(x*beta)
		})
}

// Pow raises the elements of x to a constant exponent. The gradient of exponent 0 is 0 everywhere.
func (tp *Tape) Pow(x *Tensor, exponent float64) *Tensor {
	return tp.mapped("pow", x,
		func(x float64) float64 { return power(x, exponent) },
		func(g, x, _ float64) float64 { return g * powSlope(x, exponent) })
}

// powSlope returns the derivative of x^e with respect to x. It is 0 for e = 0, even at x = 0.
func powSlope(x, e float64) float64 {
	if e == 0 {
		return 0
	}
	return e * power(x, e-1)
}

// power is math.Pow, but with roots as torch computes them: NaN for -Inf.
func power(x, e float64) float64 {
	switch e {
	case 0.5:
		return math.Sqrt(x)
	case -0.5:
		return 1 / math.Sqrt(x)
	}
	return math.Pow(x, e)
}

// PowTensor raises a to b, element by element. It broadcasts as Add does. Where a is 0 and b is not
// negative, the gradient of b is 0.
func (tp *Tape) PowTensor(a, b *Tensor) *Tensor {
	return tp.binary("pow", a, b, math.Pow,
		func(g, a, b float64) float64 { return g * powSlope(a, b) },
		func(g, a, b float64) float64 {
			if a == 0 && b >= 0 {
				return 0
			}
			return g * (math.Pow(a, b) * math.Log(a))
		})
}

// Div returns a/b, element by element. It broadcasts as Add does.
func (tp *Tape) Div(a, b *Tensor) *Tensor {
	return tp.binary("div", a, b,
		func(a, b float64) float64 { return a / b },
		func(g, _, b float64) float64 { return g / b },
		func(g, a, b float64) float64 { return -g * (a / b / b) })
}

// binary applies a function to pairs of elements, in float64. da and db return the products of the
// result's gradient g and the derivatives.
func (tp *Tape) binary(name string, a, b *Tensor, f func(a, b float64) float64, da, db func(g, a, b float64) float64) *Tensor {
	out, w := tp.broadcast(name, a, b)
	if w == nil {
		return out
	}
	w.each(func(y, i, j int) { out.data[y] = float32(f(float64(a.data[i]), float64(b.data[j]))) })
	return tp.record(out, func(grad []float32) {
		w.reduce(tp.gradient(a), false, func(y, i, j int) float32 {
			return float32(da(float64(grad[y]), float64(a.data[i]), float64(b.data[j])))
		})
		w.reduce(tp.gradient(b), true, func(y, i, j int) float32 {
			return float32(db(float64(grad[y]), float64(a.data[i]), float64(b.data[j])))
		})
	})
}

// Bools returns a constant with 1 for true and 0 for false, for use as a condition of
// [Tape.Where].
func (tp *Tape) Bools(data []bool, shape ...int) *Tensor {
	v := make([]float32, len(data))
	for i, b := range data {
		if b {
			v[i] = 1
		}
	}
	return tp.Input(v, shape...)
}

// Where returns the elements of a where condition is not 0, and those of b elsewhere. The three
// broadcast as in Add. An element that is not selected gets a gradient of exactly 0, even if the
// operation that made it has an infinite slope there and b is a constant. condition has no gradient.
func (tp *Tape) Where(condition, a, b *Tensor) *Tensor {
	if !tp.ready("where", condition, a, b) {
		return tp.void()
	}
	shape := tp.common(condition.shape, a.shape, b.shape)
	if shape == nil {
		return tp.fail("where: cannot broadcast shapes %v, %v and %v", condition, a, b)
	}
	condition, a, b = tp.Expand(condition, shape...), tp.Expand(a, shape...), tp.Expand(b, shape...)
	out := tp.result(shape, a, b)
	pick := func(i int) *Tensor {
		if condition.data[i] != 0 {
			return a
		}
		return b
	}
	for i := range out.data {
		out.data[i] = pick(i).data[i]
	}
	return tp.record(out, func(grad []float32) {
		ga, gb := tp.gradient(a), tp.gradient(b)
		for i, d := range grad {
			if condition.data[i] != 0 && ga != nil {
				ga[i] += d
			} else if condition.data[i] == 0 && gb != nil {
				gb[i] += d
			}
		}
	})
}

// common returns the shape to which shapes broadcast, or nil if there is none.
func (tp *Tape) common(shapes ...[]int) []int {
	all := []int{}
	for _, s := range shapes {
		w := tp.pair(all, s)
		if w == nil {
			return nil
		}
		all = w.shape
	}
	return all
}
