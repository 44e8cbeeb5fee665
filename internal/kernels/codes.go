package kernels

// Few tokens meet weights of [E4M3] and [MXFP4] codes where they lie: a code is widened, without its
// scale, once for a group of tokens. Scales are applied to the tokens before, to the sum of a block or to
// the result, which rounds as often as scaling each weight would, but in other places: so these products
// have an order of sums of their own, one for each variant, whatever the number of tokens.

// coder is what a variant implements for that. Bounds have been checked.
type coder interface {
	// codesMost is the tokens of the largest group.
	codesMost() int
	// codesFloats is the length of a packed token of n elements.
	codesFloats(p *Packed, n int) int
	// packCodes lays out a group of tokens for p.
	packCodes(dst []float32, p *Packed, x Floats, tokens, n int)
	// codesScratch is what mulCodes needs.
	codesScratch(p *Packed, rows, tokens, n int) int
	// mulCodes is [Set.MulCodes].
	mulCodes(y Floats, p *Packed, row, step, rows int, x, scratch []float32, tokens, n int)
}

// codesBlock is what rows, and blocks with a scale, have a multiple of.
const codesBlock = 32

// Codes reports whether s has PackCodes and MulCodes for n columns of p from column col on.
func (s *Set) Codes(p *Packed, col, n int) bool {
	if s.coder == nil || col != 0 || n <= 0 || n%codesBlock != 0 {
		return false
	}
	return p.Packing == MXFP4 || p.Packing == E4M3 && (p.Columns >= n || p.Columns%codesBlock == 0)
}

// CodesTokens is how many of so many tokens make the next group: 8, 4, 2 or 1.
func (s *Set) CodesTokens(tokens int) int {
	group := s.coder.codesMost()
	for group > tokens {
		group /= 2
	}
	return group
}

// CodesFloats is the length of a token of n elements that PackCodes lays out for p.
func (s *Set) CodesFloats(p *Packed, n int) int { return s.coder.codesFloats(p, n) }

// PackCodes lays out a group of tokens of n elements for p.
func (s *Set) PackCodes(dst []float32, p *Packed, x Floats, tokens, n int) {
	x.check(tokens, n)
	s.coder.packCodes(dst[:tokens*s.CodesFloats(p, n)], p, x, tokens, n)
}

// CodesScratch is the length of the scratch of MulCodes.
func (s *Set) CodesScratch(p *Packed, rows, tokens, n int) int {
	return s.coder.codesScratch(p, rows, tokens, n)
}

// MulCodes sets y[t][i] = Σ_k w[row + i·step][k] · x[t][k] for i < rows, the tokens of a packed group and
// n columns of p, for which Codes holds. As many rows as there are behind these may be fetched meanwhile.
func (s *Set) MulCodes(y Floats, p *Packed, row, step, rows int, x, scratch []float32, tokens, n int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.check(tokens, rows)
	x, scratch = x[:tokens*s.CodesFloats(p, n)], scratch[:s.CodesScratch(p, rows, tokens, n)]
	last := row + (rows-1)*step
	if p.Packing == MXFP4 {
		_, _ = p.Codes[:last*p.Width/2+n/2], p.Scales[:last*p.Width/codesBlock+n/codesBlock]
	} else {
		_, _ = p.Codes[:last*p.Width+n], p.Scales[:p.ScaleFormat.Size()*((last/p.Rows)*ceil(p.Width, p.Columns)+ceil(n, p.Columns))]
	}
	s.coder.mulCodes(y, p, row, step, rows, x, scratch, tokens, n)
}
