package kernels

// Activations rounded to eight bits are blocks of 32 as the weights of Q8 and Q4 have them:
// signed codes for a scale that makes the largest magnitude 127. A product with a block of
// weights is a sum of integers, exact, times both scales.

// intWords is the length in words of a block: its codes, sums of four, the scale and room.
const intWords = 24

// IntWords is the length in words of a row of n rounded activations, a multiple of 32.
func IntWords(n int) int { return n / BlockColumns * intWords }

// integers is what a variant that multiplies integers of eight bits implements. Bounds have
// been checked.
type integers interface {
	narrow(p Packing, dst []uint32, src []float32)
	dot(p Packing, y Floats, blocks []byte, stride int, x Pairs, rows, tokens, n int)
}

// Integers reports whether s has NarrowInts and MulInts.
func (s *Set) Integers() bool { return s.integers != nil }

// NarrowInts rounds src, whole blocks, for products with weights of p. A block with a value
// that is not finite becomes NaN.
func (s *Set) NarrowInts(p Packing, dst []uint32, src []float32) {
	if len(src) > 0 {
		s.integers.narrow(p, dst[:IntWords(len(src))], src)
	}
}

// MulInts sets y[t][i] to the product of x[t], n columns that NarrowInts rounded, with row +
// i·step of p from column col on, for i < rows and t < tokens. n and col are multiples of 32. Each
// has the same bits whatever the number of rows and tokens.
func (s *Set) MulInts(y Floats, p *Packed, row, step, col, rows int, x Pairs, tokens, n int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.check(tokens, rows)
	_ = x.V[:(tokens-1)*x.Stride+IntWords(n)]
	size := p.Packing.BlockBytes()
	stride := p.Width / BlockColumns * size
	first := row*stride + col/BlockColumns*size
	blocks := p.Codes[first : first+(rows-1)*step*stride+n/BlockColumns*size]
	s.integers.dot(p.Packing, y, blocks, step*stride, x, rows, tokens, n)
}
