// Package gemv multiplies stored weights by few tokens: dot products of rows, sums of columns,
// and the products of attention with keys and values.
//
// # Order of summation
//
// Within one variant every sum has one order, which depends only on its length. A dot product of
// length n has [Kernels.Lanes] partial sums. Lane l adds the products k ≡ l (mod lanes) in
// ascending k. Then the lanes are added in halves: lane i and lane i+lanes/2, and so on down to
// one. [Kernels.Mix] adds in ascending order of the keys. A result does not depend on the rows
// and tokens of a call or on the alignment of its operands. [Kernels.AddLanes] computes the bits
// of [Kernels.Mul] for a transposed matrix. The assembly uses fused multiply-add and the Go
// variant does not, so variants differ from each other in the last bits. One variant always
// computes the same bits.
//
// [Kernels.MulSplit] is a dot product for bfloat16 weights. Its lane l adds the products 2l and
// 2l+1 (mod twice the lanes), because both weights of a word are widened at once.
// [Kernels.MulPairs] multiplies bfloat16 weights by activations rounded to bfloat16.
package gemv

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// Product holds the operands of [Kernels.Mul]: Rows rows of weights W and Tokens rows of X, with
// N elements each.
type Product struct {
	Y            mat.Floats // Tokens × Rows
	W            mat.Weights
	X            mat.Floats
	Rows, Tokens int
	N            int
}

// Mul sets Y[t][r] = Σ_k W[r][k] · X[t][k]. Each element is a dot product.
func (s *Kernels) Mul(p *Product) {
	if p.Rows <= 0 || p.Tokens <= 0 {
		return
	}
	p.Y.Check(p.Tokens, p.Rows)
	p.W.Check(p.Rows, p.N)
	p.X.Check(p.Tokens, p.N)
	mul(s.ops, p)
}

// RowSum holds the operands of [Kernels.Mix]. For each of Tokens tokens, a weighted sum of the
// Keys rows of V, which have Cols columns, is added to a row of Y. Row j of V has the weight
// P[t][j·Step].
type RowSum struct {
	Y, P               mat.Floats
	Step               int
	V                  mat.Weights
	Keys, Tokens, Cols int
}

// Mix adds Σ_j P[t][j·Step] · V[j][c] to Y[t][c], in ascending order of j.
func (s *Kernels) Mix(r *RowSum) {
	if r.Keys <= 0 || r.Tokens <= 0 || r.Cols <= 0 {
		return
	}
	r.Y.Check(r.Tokens, r.Cols)
	r.P.Check(r.Tokens, (r.Keys-1)*r.Step+1)
	r.V.Check(r.Keys, r.Cols)
	s.ops.mix(r.Y, r.P, r.Step, r.V, r.Keys, r.Tokens, r.Cols)
}

// AddLanes adds the partial sums of a dot product down each column of v: x[j] · v[j][c] is added
// to lanes[l·cols+c] with l = j mod s.Lanes, in ascending order of j. [Kernels.FoldLanes]
// completes the sum.
func (s *Kernels) AddLanes(lanes, x []float32, v mat.Weights, cols int) {
	if len(x) == 0 || cols <= 0 {
		return
	}
	v.Check(len(x), cols)
	s.ops.addLanes(lanes[:s.Lanes*cols], x, v, cols)
}

// FoldLanes adds the s.Lanes consecutive vectors of n elements in lanes, in the order of a dot
// product. It stores the sum in lanes[:n].
func (s *Kernels) FoldLanes(lanes []float32, n int) {
	for half := s.Lanes / 2; half > 0; half /= 2 {
		a, b := lanes[:half*n], lanes[half*n:2*half*n]
		for i := range a {
			a[i] += b[i]
		}
	}
}

// Kernels are the GEMV kernels of one variant. They are stateless and safe for concurrent use.
type Kernels struct {
	// Lanes is the number of partial sums of a dot product.
	Lanes int
	// WidenAt is the number of tokens from which it is faster to widen 16-bit weights to float32
	// before Mul; 0 means never.
	WidenAt int

	ops      ops
	splitter splitter // nil if there are no split products
	pairs    pairer   // nil if activations are never rounded
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	k := Kernels{Lanes: v.Lanes, ops: opsOf(v), splitter: splitterOf(v), pairs: pairsOf(v)}
	if v.Level == isa.Go {
		k.WidenAt = 2
	}
	return k
}

// ops is implemented by each variant, together with the function mul. The caller has checked
// bounds. Operands are separate parameters, because a pointer to them would escape through the
// interface and allocate.
type ops interface {
	mix(y, p mat.Floats, step int, v mat.Weights, keys, tokens, cols int)
	addLanes(lanes, x []float32, v mat.Weights, cols int)
}
