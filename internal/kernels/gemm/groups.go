package gemm

import (
	"math"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// GroupRows is the number of rows of weights that a group packs together.
const GroupRows = 3

// grouper is implemented by variants that multiply packed groups. The caller has checked bounds,
// and n is a multiple of the number of lanes.
type grouper interface {
	spread(dst []float32, step int, src []byte, n int, f mat.Format)
	groups(p GroupProduct)
}

// HasGroups reports whether the variant implements PackGroup, PackGroups and MulGroups, the
// kernels for packed groups of rows and tokens. They compute gemv's Mul for many tokens, with the
// same bits.
func (s *Kernels) HasGroups() bool { return s.GroupTokens > 0 }

// GroupFloats returns the length of a group of count rows of n elements, padded to whole rounds
// of the lanes.
func (s *Kernels) GroupFloats(count, n int) int {
	return count * mat.CeilDiv(n, s.variant.Lanes) * s.variant.Lanes
}

// PackGroup packs up to GroupTokens rows of x. For each round of the lanes it stores the elements
// of each token. The rest is 0.
func (s *Kernels) PackGroup(dst []float32, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	dst = dst[:s.GroupFloats(s.GroupTokens, n)]
	clear(dst)
	for t := range tokens {
		s.spread(dst[t*s.variant.Lanes:], s.GroupTokens, asm.FloatBytes(x.V[t*x.Stride:][:n]), n, mat.Float32, 0)
	}
}

// PackGroups packs rows of w as float32 in groups of GroupRows. For each round of the lanes it
// stores the elements of each row. Elements beyond n are −0, whose product with a token's 0
// changes no sum. Rows beyond the last are not written.
func (s *Kernels) PackGroups(dst []float32, w mat.Weights, rows, n int) {
	w.Check(rows, n)
	size := s.GroupFloats(GroupRows, n)
	dst = dst[:mat.CeilDiv(rows, GroupRows)*size]
	for r := range rows {
		s.spread(dst[r/GroupRows*size+r%GroupRows*s.variant.Lanes:], GroupRows, w.Data[r*w.Stride:], n, w.Format, float32(math.Copysign(0, -1)))
	}
}

// spread widens n elements of src into every of-th round of dst and pads the last round with
// fill.
func (s *Kernels) spread(dst []float32, of int, src []byte, n int, f mat.Format, fill float32) {
	whole := n / s.variant.Lanes * s.variant.Lanes
	if whole > 0 {
		s.grouper.spread(dst[:(whole-s.variant.Lanes)*of+s.variant.Lanes], of*s.variant.Lanes, src[:whole*f.Size()], whole, f)
	}
	if whole < n {
		last := dst[whole*of:][:s.variant.Lanes]
		s.vector.Widen(last[:n-whole], src[whole*f.Size():], f)
		for i := n - whole; i < s.variant.Lanes; i++ {
			last[i] = fill
		}
	}
}

// SumFloats returns the number of floats that MulGroups needs for the sums of rows and one group of
// tokens.
func (s *Kernels) SumFloats(rows int) int {
	return mat.CeilDiv(rows, GroupRows) * GroupRows * s.GroupTokens * s.variant.Lanes
}

// GroupProduct holds the operands of [Kernels.MulGroups]: packed weights W of Rows rows and a
// packed group X of Tokens tokens, with N elements each. Sums keeps the partial sums from the
// First piece of k to the Last one, which sets Y.
type GroupProduct struct {
	Y            mat.Floats
	W, X, Next   []float32 // Next is prefetched; it may be nil
	Sums         []float32
	Rows, Tokens int
	N            int
	First, Last  bool
}

// MulGroups adds the products of N elements of each row and token to Y[t][r], from the beginning
// of the packed weights and of one packed group of up to GroupTokens tokens. From the first piece
// of k to the last one, the lanes are kept in Sums. The last piece sets Y. All pieces except the
// last are whole rounds of the lanes.
func (s *Kernels) MulGroups(p GroupProduct) {
	if p.Rows <= 0 || p.Tokens <= 0 || p.N <= 0 {
		return
	}
	p.Y.Check(p.Tokens, p.Rows)
	p.N, p.Tokens = mat.CeilDiv(p.N, s.variant.Lanes)*s.variant.Lanes, min(p.Tokens, s.GroupTokens)
	_, _, _ = p.W[:mat.CeilDiv(p.Rows, GroupRows)*GroupRows*p.N], p.X[:s.GroupTokens*p.N], p.Sums[:s.SumFloats(p.Rows)]
	s.grouper.groups(p)
}
