package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// gateGrad is one backward operation of Gate.
type gateGrad struct {
	set   *kernels.Set
	act   meta.Activation
	limit float32
}

// GateGrad recomputes the activation and its derivative.
func (b *Backend) GateGrad(dgate, dup, dy, g, up tensor.Tensor, act meta.Activation, limit float32) {
	if b.failed.Load() {
		return
	}
	rows, cols := dy.Rows(), dy.Cols()
	const name = "gate gradient"
	grad, ok1 := b.floats(name, "result", dy, rows, cols)
	in, ok2 := b.floats(name, "gate", g, rows, cols)
	other, ok3 := b.optional(name, "up", up, rows, cols)
	dg, ok4 := b.optional(name, "gate's gradient", dgate, rows, cols)
	du, ok5 := b.optional(name, "up's gradient", dup, rows, cols)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !b.reserve(3*cols) {
		return
	}
	if act != meta.ActExpRest && (limit <= 0 || act != meta.ActClampedSwiGLU && act != meta.ActClampedSiLU && act != meta.ActClamp) {
		limit = float32(math.Inf(1))
	}
	op := &gateGrad{set: b.set, act: act, limit: limit}
	b.each(rows, 4*cols, func(w *worker, r int) {
		value, slope, scratch := w.scratch.v[:cols], w.scratch.v[cols:2*cols], w.scratch.v[2*cols:3*cols]
		dy := row(grad, r, cols)
		var u []float32
		if other.V != nil {
			u = row(other, r, cols)
		}
		if act == meta.ActSiLU || act == meta.ActGELUTanh {
			toGate, toUp := value, slope // scratch memory if the caller does not need them
			if dg.V != nil {
				toGate = row(dg, r, cols)
			}
			if du.V != nil {
				toUp = row(du, r, cols)
			}
			if act == meta.ActSiLU {
				b.set.Grad.SiLUGrad(toGate, toUp, dy, row(in, r, cols), u)
			} else {
				b.set.Grad.GELUTanhGrad(toGate, toUp, dy, row(in, r, cols), u)
			}
			return
		}
		op.activate(value, slope, scratch, row(in, r, cols))
		if dg.V != nil {
			op.addGate(row(dg, r, cols), dy, slope, u)
		}
		if du.V != nil {
			op.addUp(row(du, r, cols), dy, value, u)
		}
	})
}

func (op *gateGrad) addGate(dst, dy, slope, up []float32) {
	slope, dy = slope[:len(dst)], dy[:len(dst)]
	switch {
	case up == nil:
		for i, s := range slope {
			dst[i] += dy[i] * s
		}
	case op.act == meta.ActClampedSwiGLU:
		for i, s := range slope {
			dst[i] += dy[i] * s * (max(min(up[i], op.limit), -op.limit) + 1)
		}
	case op.act == meta.ActClampedSiLU:
		for i, s := range slope {
			dst[i] += dy[i] * s * max(min(up[i], op.limit), -op.limit)
		}
	default:
		for i, s := range slope {
			dst[i] += dy[i] * s * up[i]
		}
	}
}

func (op *gateGrad) addUp(dst, dy, value, up []float32) {
	clamped := op.act == meta.ActClampedSwiGLU || op.act == meta.ActClampedSiLU
	for i, v := range value[:len(dst)] {
		if !clamped || -op.limit <= up[i] && up[i] <= op.limit {
			dst[i] += dy[i] * v
		}
	}
}

// activate sets value and slope to the activation of x and its derivative.
func (op *gateGrad) activate(value, slope, scratch, x []float32) {
	switch op.act {
	case meta.ActClampedSwiGLU:
		op.below(value, slope, scratch, x, 1.702)
	case meta.ActClampedSiLU:
		op.below(value, slope, scratch, x, 1)
	case meta.ActReLU:
		op.set.Vector.ReLU(value, x)
		for i, v := range x {
			if slope[i] = 1; v <= 0 {
				slope[i] = 0
			}
		}
	case meta.ActClamp: // as torch, the slope at a limit is 1
		for i, v := range x {
			value[i], slope[i] = max(min(v, op.limit), -op.limit), 1
			if v < -op.limit || v > op.limit {
				slope[i] = 0
			}
		}
	case meta.ActExpRest:
		for i, v := range x {
			value[i], slope[i] = expRest(v, op.limit), expRestSlope(v, op.limit)
		}
	case meta.ActSigmoid:
		for i, v := range x {
			value[i] = -v
		}
		op.set.Vector.ExpSum(value, 0)
		for i, e := range value {
			s := 1 / (1 + e)
			value[i], slope[i] = s, s*(1-s)
		}
	case meta.ActTanh:
		copy(value, x)
		op.set.Vector.Tanh(value, 1, 1)
		for i, y := range value {
			slope[i] = 1 - y*y
		}
	default:
		for i, v := range x {
			y, d := derivative(op.act, float64(v))
			value[i], slope[i] = float32(y), float32(d)
		}
	}
}

// below is sigmoid for elements of x that are at most the limit.
func (op *gateGrad) below(value, slope, sigma, x []float32, c1 float32) {
	for i, v := range x {
		value[i] = min(v, op.limit)
	}
	op.sigmoid(value, slope, sigma, value, c1, 0)
	for i, v := range x {
		if v > op.limit {
			slope[i] = 0
		}
	}
}

// sigmoid computes x·σ(x·(c1 + c3·x²)) and its derivative. value may be x.
func (op *gateGrad) sigmoid(value, slope, sigma, x []float32, c1, c3 float32) {
	for i, v := range x {
		sigma[i] = -v * (c1 + c3*v*v)
	}
	op.set.Vector.ExpSum(sigma, 0)
	for i, e := range sigma {
		s, v := 1/(1+e), x[i]
		rest := 1 - s
		if math.IsInf(float64(e), 1) {
			s, rest = 0, 1
		}
		value[i] = v * s
		slope[i] = s * (1 + v*rest*(c1+3*c3*v*v))
	}
}

// expRestSlope returns the derivative of expRest; at a corner, the one from the left.
func expRestSlope(x, limit float32) float32 {
	switch {
	case x > 0:
		return 0
	case x > -limit:
		return -1
	}
	return float32(vector.AccurateExpm1(float64(x)))
}

// derivative returns an activation that has no vector form and its derivative; at a corner, the
// one from the left.
func derivative(act meta.Activation, x float64) (y, slope float64) {
	switch act {
	case meta.ActReLU2:
		if x > 0 {
			return x * x, 2 * x
		}
		return 0, 0
	case meta.ActExp:
		y = vector.AccurateExp(x)
		return y, y
	case meta.ActSoftplus:
		return softplus(x), 1 / (1 + vector.AccurateExp(-x))
	case meta.ActGELU:
		phi := 0.5 * math.Erfc(-x/math.Sqrt2)
		return x * phi, phi + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	}
	return x, 1
}

// ScaleGrad needs y only for the derivative of the softcap.
func (b *Backend) ScaleGrad(dx, y tensor.Tensor, by, softcap float32) {
	if b.failed.Load() {
		return
	}
	rows, cols := dx.Rows(), dx.Cols()
	grad, ok1 := b.floats("scale gradient", "operand", dx, rows, cols)
	if softcap <= 0 {
		y = tensor.Tensor{}
	}
	result, ok2 := b.optional("scale gradient", "result", y, rows, cols)
	if !ok1 || !ok2 {
		return
	}
	if softcap > 0 && result.V == nil {
		b.fail("scale gradient: no result for the slope of a cap")
		return
	}
	b.each(rows, cols, func(_ *worker, r int) {
		g := row(grad, r, cols)
		if softcap > 0 {
			for i, v := range row(result, r, cols) {
				t := v / softcap
				g[i] *= 1 - t*t
			}
		}
		b.set.Vector.ScaleShift(g, by, 0)
	})
}
