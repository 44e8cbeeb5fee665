package kernels

import (
	"math"
	"unsafe"
)

// GroupRows is the number of rows of weights that a group packs together.
const GroupRows = 3

// grouper is what a variant implements that multiplies packed groups. Bounds have been
// checked, and n is a multiple of the lanes.
type grouper interface {
	spread(dst []float32, step int, src []byte, n int, f Format)
	groups(y Floats, w, x, next, sums []float32, rows, tokens, n int, first, last bool)
}

// Groups reports whether s has the kernels for packed groups of rows and tokens:
// PackGroup, PackGroups and MulGroups. They are Mul for many tokens, with its bits.
func (s *Set) Groups() bool { return s.GroupTokens > 0 }

// GroupFloats is the length of a group of count rows of n elements, which are filled up to
// whole rounds of the lanes.
func (s *Set) GroupFloats(count, n int) int { return count * ceil(n, s.Lanes) * s.Lanes }

// PackGroup packs up to GroupTokens rows of x: for each round of the lanes the elements of
// each token. The rest is zeros.
func (s *Set) PackGroup(dst []float32, x Floats, tokens, n int) {
	x.check(tokens, n)
	dst = dst[:s.GroupFloats(s.GroupTokens, n)]
	clear(dst)
	for t := range tokens {
		s.spread(dst[t*s.Lanes:], s.GroupTokens, floatBytes(x.V[t*x.Stride:][:n]), n, Float32, 0)
	}
}

// PackGroups packs rows of w in groups of GroupRows: for each round of the lanes the
// elements of each row, as float32. Elements beyond n are −0, whose product with a token's
// 0 changes no sum; rows beyond the last are left alone.
func (s *Set) PackGroups(dst []float32, w Weights, rows, n int) {
	w.check(rows, n)
	size := s.GroupFloats(GroupRows, n)
	dst = dst[:ceil(rows, GroupRows)*size]
	for r := range rows {
		s.spread(dst[r/GroupRows*size+r%GroupRows*s.Lanes:], GroupRows, w.Data[r*w.Stride:], n, w.Format, float32(math.Copysign(0, -1)))
	}
}

func floatBytes(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// spread widens n elements of src into every of-th round of dst and fills up the last one.
func (s *Set) spread(dst []float32, of int, src []byte, n int, f Format, fill float32) {
	whole := n / s.Lanes * s.Lanes
	if whole > 0 {
		s.grouper.spread(dst[:(whole-s.Lanes)*of+s.Lanes], of*s.Lanes, src[:whole*f.Size()], whole, f)
	}
	if whole < n {
		last := dst[whole*of:][:s.Lanes]
		s.Widen(last[:n-whole], src[whole*f.Size():], f)
		for i := n - whole; i < s.Lanes; i++ {
			last[i] = fill
		}
	}
}

// SumFloats is what MulGroups needs to keep the sums of rows and one group of tokens.
func (s *Set) SumFloats(rows int) int {
	return ceil(rows, GroupRows) * GroupRows * s.GroupTokens * s.Lanes
}

// MulGroups adds n elements of each row and token to y[t][r], from where packed weights and
// one packed group of up to GroupTokens tokens begin. Between the first and the last piece
// of k the lanes are kept in sums; y is set with the last. All pieces but the last are whole
// rounds of the lanes. next is the group that comes next, which the processor is told to
// fetch; it may be nil.
func (s *Set) MulGroups(y Floats, w, x, next, sums []float32, rows, tokens, n int, first, last bool) {
	if rows <= 0 || tokens <= 0 || n <= 0 {
		return
	}
	y.check(tokens, rows)
	n = ceil(n, s.Lanes) * s.Lanes
	_, _, _ = w[:ceil(rows, GroupRows)*GroupRows*n], x[:s.GroupTokens*n], sums[:s.SumFloats(rows)]
	s.grouper.groups(y, w, x, next, sums, rows, min(tokens, s.GroupTokens), n, first, last)
}
