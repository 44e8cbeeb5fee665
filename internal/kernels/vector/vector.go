// Package vector implements the elementwise loops and reductions of inference and training:
// activations, norms, rotary positions, softmax, conversions between float32 and the formats of
// weights, and transposition.
//
// Functions documented to sum in the order of a dot product sum as package gemv does, in an order
// that depends only on the length. Sums in float64 have an order of the variant's own. All other
// results have the same bits in every variant, except those with an exponential, which differ in
// the last bits.
package vector

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// ExpSum sets x[i] = exp(x[i] − shift) and returns their sum, in the order of a dot product.
func (s *Kernels) ExpSum(x []float32, shift float32) float32 { return s.ops.expSum(x, shift) }

// Gate sets dst[i] = g · σ(g·(c1 + c3·g²)) · up[i] with g = gate[i]. up may be nil, which means
// ones. The coefficients c1, c3 are (1, 0) for SiLU, (1.702, 0) for the sigmoid form of GELU and
// (2√(2/π), 0.044715·2√(2/π)) for its tanh form. dst may be gate.
func (s *Kernels) Gate(dst, gate, up []float32, c1, c3 float32) {
	gate = gate[:len(dst)]
	if up != nil {
		up = up[:len(dst)]
	}
	s.ops.gate(dst, gate, up, c1, c3)
}

// GELU sets dst[i] = x·Φ(x) with x = x[i], where Φ is the normal distribution function. dst may
// be x.
func (s *Kernels) GELU(dst, x []float32) { s.ops.gelu(dst, x[:len(dst)]) }

// Tanh sets x[i] = outer · tanh(inner · x[i]).
func (s *Kernels) Tanh(x []float32, inner, outer float32) { s.ops.tanh(x, inner, outer) }

// ScaleMax multiplies x by scale and returns the largest element, or −Inf if x is empty. It
// ignores NaNs.
func (s *Kernels) ScaleMax(x []float32, scale float32) float32 { return s.ops.scaleMax(x, scale) }

// SumSquares returns Σ (x[i] − shift)², in the order of a dot product.
func (s *Kernels) SumSquares(x []float32, shift float32) float32 { return s.ops.sumSquares(x, shift) }

// Widen converts len(dst) elements of src to float32, exactly.
func (s *Kernels) Widen(dst []float32, src []byte, f mat.Format) {
	if len(dst) > 0 {
		s.ops.widen(dst, src[:len(dst)*f.Size()], f)
	}
}

// Transpose sets dst[c][r] = w[r][c] for r < rows and c < cols, converted to float32 exactly.
func (s *Kernels) Transpose(dst mat.Floats, w mat.Weights, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	dst.Check(cols, rows)
	w.Check(rows, cols)
	s.ops.columns(dst, w, rows, cols)
}

// Kernels are the vector kernels of one variant. They are stateless and safe for concurrent use.
type Kernels struct {
	ops   ops
	pairs pairer // nil if there is no rounding to pairs of bfloat16
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels { return Kernels{ops: opsOf(v), pairs: pairsOf(v)} }

// ops is implemented by each variant. The caller has checked bounds.
type ops interface {
	pointwise
	rower
	arith
	recurrent
	expSum(x []float32, shift float32) float32
	gate(dst, gate, up []float32, c1, c3 float32)
	gelu(dst, x []float32)
	tanh(x []float32, inner, outer float32)
	scaleMax(x []float32, scale float32) float32
	sumSquares(x []float32, shift float32) float32
	widen(dst []float32, src []byte, f mat.Format)
	columns(dst mat.Floats, w mat.Weights, rows, cols int)
}
