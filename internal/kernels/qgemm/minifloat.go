package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Small batches multiply weights of [E4M3] and [MXFP4] codes without unpacking them first: a code
// is widened, without its scale, once for a group of tokens. Scales are applied to the tokens
// before, to the sum of a block or to the result, which rounds as often as scaling each weight
// would, but in other places: so these products have an order of sums of their own, one for each
// variant, whatever the number of tokens.

// coder is what a variant implements for that. Bounds have been checked.
type coder interface {
	// codesMost is the tokens of the largest group.
	codesMost() int
	// codesFloats is the length of a packed token of n elements.
	codesFloats(p *quant.Packed, n int) int
	// packCodes lays out a group of tokens for p.
	packCodes(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int)
	// codesScratch is what mulCodes needs.
	codesScratch(p *quant.Packed, rows, tokens, n int) int
	// mulCodes is [Kernels.MulMinifloat].
	mulCodes(y mat.Floats, w quant.View, x, scratch []float32, tokens int)
}

// codesBlock is what rows, and blocks with a scale, have a multiple of.
const codesBlock = 32

// HasMinifloat reports whether the variant has PackMinifloat and MulMinifloat for n columns of p
// from column col on.
func (s *Kernels) HasMinifloat(p *quant.Packed, col, n int) bool {
	if s.coder == nil || col != 0 || n <= 0 || n%codesBlock != 0 {
		return false
	}
	return p.Packing == quant.MXFP4 || p.Packing == quant.E4M3 && (p.Columns >= n || p.Columns%codesBlock == 0)
}

// MinifloatGroup is how many of so many tokens make the next group: 8, 4, 2 or 1.
func (s *Kernels) MinifloatGroup(tokens int) int {
	group := s.coder.codesMost()
	for group > tokens {
		group /= 2
	}
	return group
}

// MinifloatFloats is the length of a token of n elements that PackMinifloat lays out for p.
func (s *Kernels) MinifloatFloats(p *quant.Packed, n int) int { return s.coder.codesFloats(p, n) }

// PackMinifloat lays out a group of tokens of n elements for p.
func (s *Kernels) PackMinifloat(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	s.coder.packCodes(dst[:tokens*s.MinifloatFloats(p, n)], p, x, tokens, n)
}

// MinifloatScratch is the length of the scratch of MulMinifloat.
func (s *Kernels) MinifloatScratch(p *quant.Packed, rows, tokens, n int) int {
	return s.coder.codesScratch(p, rows, tokens, n)
}

// MulMinifloat sets y[t][i] = Σ_k w[row + i·step][k] · x[t][k] for i < rows, the tokens of a packed
// group and n columns of p, for which Codes holds. As many rows as there are behind these may be
// fetched meanwhile.
func (s *Kernels) MulMinifloat(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, rows)
	x, scratch = x[:tokens*s.MinifloatFloats(p, n)], scratch[:s.MinifloatScratch(p, rows, tokens, n)]
	last := row + (rows-1)*step
	if p.Packing == quant.MXFP4 {
		_, _ = p.Codes[:last*p.Width/2+n/2], p.Scales[:last*p.Width/codesBlock+n/codesBlock]
	} else {
		_, _ = p.Codes[:last*p.Width+n], p.Scales[:p.ScaleFormat.Size()*((last/p.Rows)*mat.CeilDiv(p.Width, p.Columns)+mat.CeilDiv(n, p.Columns))]
	}
	s.coder.mulCodes(y, w, x, scratch, tokens)
}
