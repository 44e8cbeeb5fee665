package tensor

import (
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/meta"
)

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

// gated runs the backend's act(x)·up, or act(x) if up is nil. The result must not share x's
// memory.
func (tp *Tape) gated(name string, x, up *Tensor, act meta.Activation) *Tensor {
	out := tp.blank(x.shape, x, up)
	if len(out.data) == 0 {
		return tp.record(out, func([]float32) {})
	}
	n := rowOf(len(out.data))
	tp.compute(name, func(b *cpu.Backend) {
		b.Gate(matrixOf(out.data, n), matrixOf(x.data, n), matrixOf(dataOf(up), n), act, 0)
	})
	return tp.record(out, func(grad []float32) {
		dx, dup := tp.gradient(x), tp.gradient(up)
		tp.compute(name, func(b *cpu.Backend) {
			b.GateGrad(matrixOf(dx, n), matrixOf(dup, n), matrixOf(grad, n), matrixOf(x.data, n), matrixOf(dataOf(up), n), act, 0)
		})
	})
}

// rowOf returns the length of rows into which n elements are divided for pointwise work on
// several threads.
func rowOf(n int) int {
	for row := grain / 4; row >= 64; row /= 2 {
		if n%row == 0 {
			return row
		}
	}
	return n
}

// SiLU computes x·σ(x).
func (tp *Tape) SiLU(x *Tensor) *Tensor {
	if !tp.ready("silu", x) {
		return tp.void()
	}
	return tp.gated("silu", x, nil, meta.ActSiLU)
}

// Sigmoid computes 1/(1 + exp(-x)).
func (tp *Tape) Sigmoid(x *Tensor) *Tensor {
	if !tp.ready("sigmoid", x) {
		return tp.void()
	}
	return tp.gated("sigmoid", x, nil, meta.ActSigmoid)
}

// ReLU computes max(x, 0). Its gradient at 0 is 0. NaN stays NaN.
func (tp *Tape) ReLU(x *Tensor) *Tensor {
	if !tp.ready("relu", x) {
		return tp.void()
	}
	out := tp.gated("relu", x, nil, meta.ActReLU)
	if out.widen(x) {
		for i, v := range x.wide {
			out.wide[i] = max(v, 0)
		}
	}
	return out
}

// Tanh computes the hyperbolic tangent.
func (tp *Tape) Tanh(x *Tensor) *Tensor {
	if !tp.ready("tanh", x) {
		return tp.void()
	}
	return tp.gated("tanh", x, nil, meta.ActTanh)
}

// GELU computes x·Φ(x), where Φ is the normal distribution function.
func (tp *Tape) GELU(x *Tensor) *Tensor {
	if !tp.ready("gelu", x) {
		return tp.void()
	}
	return tp.gated("gelu", x, nil, meta.ActGELU)
}

// GELUTanh computes GELU's approximation by a hyperbolic tangent (GPT-2's gelu_new): x·σ(2√(2/π)·(x
// + 0.044715·x³)).
func (tp *Tape) GELUTanh(x *Tensor) *Tensor {
	if !tp.ready("gelu_tanh", x) {
		return tp.void()
	}
	return tp.gated("gelu_tanh", x, nil, meta.ActGELUTanh)
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
	return tp.gated("swiglu", gate, up, meta.ActSiLU)
}
