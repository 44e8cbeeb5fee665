package qgemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// Small batches multiply FP8 ([quant.E4M3] and [quant.E4M3Powers]) and MXFP4 weights without
// dequantising them first. A kernel widens a code once for a group of tokens and leaves its scale
// out. Scales are applied to the tokens beforehand, to the sum of a block, or to the result. This
// rounds as often as scaling each weight would, but in other places. Each variant therefore has
// its own order of summation for these products, which does not depend on the number of tokens.

// minifloatKernels is implemented by each variant for products of a group of tokens. Kernels checks bounds before it calls.
type minifloatKernels interface {
	// maxGroup is the number of tokens of the largest group.
	maxGroup() int
	// sharedRows is how many rows of p with several scales each are multiplied at most at once; 0 for any number.
	sharedRows(p *quant.Packed) int
	// packedFloats is the length in floats of a packed token of n elements.
	packedFloats(p *quant.Packed, n int) int
	// packTokens interleaves a group of tokens in the order in which kernels unpack the weights of p.
	packTokens(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int)
	// scratchFloats is the length in floats of the scratch memory of mulRows.
	scratchFloats(p *quant.Packed, rows, tokens, n int) int
	// mulRows implements [Kernels.MulMinifloat].
	mulRows(y mat.Floats, w quant.View, x, scratch []float32, tokens int)
}

// minifloatBlock divides the number of columns of a product, and of the columns that share a scale.
const minifloatBlock = 32

// HasMinifloat reports whether the variant has PackMinifloat and MulMinifloat for n columns of p
// from column col on.
func (s *Kernels) HasMinifloat(p *quant.Packed, col, n int) bool {
	if s.minifloat == nil || col != 0 || n <= 0 || n%minifloatBlock != 0 {
		return false
	}
	if !storedAsE4M3(p) || p.Columns >= n {
		return storedAsE4M3(p) || storedAsMXFP4(p)
	}
	return p.Columns%minifloatBlock == 0 && (p.Packing == quant.E4M3 || p.Rows >= powersRows)
}

// powersRows is how many rows must share scales that are powers of two. Tokens are multiplied by the scales for each row of
// blocks, which takes longer than unpacking blocks of one row (MXFP8) for several tokens.
const powersRows = 16

// storedAsMXFP4 reports whether the codes and scales of p are at the places where MXFP4 has them.
func storedAsMXFP4(p *quant.Packed) bool {
	return p.Packing == quant.MXFP4 || p.Packing == quant.E2M1Powers && p.Width%minifloatBlock == 0 && p.Columns == minifloatBlock && p.Rows == 1
}

// storedAsE4M3 reports whether p has the codes of E4M3, with scales of any format.
func storedAsE4M3(p *quant.Packed) bool {
	return p.Packing == quant.E4M3 || p.Packing == quant.E4M3Powers
}

// scaleBytes is the size of a scale of E4M3 or E4M3Powers.
func scaleBytes(p *quant.Packed) int {
	if p.Packing == quant.E4M3Powers {
		return 1
	}
	return p.ScaleFormat.Size()
}

// MinifloatGroup returns the size of the next group of tokens: 8, 4, 2 or 1, at most tokens.
func (s *Kernels) MinifloatGroup(tokens int) int {
	group := s.minifloat.maxGroup()
	for group > tokens {
		group /= 2
	}
	return group
}

// MinifloatRows returns how many rows of p, from a multiple of them on, a kernel takes at most at once for n columns: those of a row
// of blocks, if tokens are multiplied by its scales. It returns 0 if there is no such limit.
func (s *Kernels) MinifloatRows(p *quant.Packed, n int) int {
	if storedAsMXFP4(p) || p.Columns >= n {
		return 0
	}
	return s.minifloat.sharedRows(p)
}

// MinifloatFloats returns the length in floats of a packed token of n elements for p.
func (s *Kernels) MinifloatFloats(p *quant.Packed, n int) int { return s.minifloat.packedFloats(p, n) }

// PackMinifloat packs a group of tokens of n elements for MulMinifloat with p. dst has MinifloatFloats floats per token.
func (s *Kernels) PackMinifloat(dst []float32, p *quant.Packed, x mat.Floats, tokens, n int) {
	x.Check(tokens, n)
	s.minifloat.packTokens(dst[:tokens*s.MinifloatFloats(p, n)], p, x, tokens, n)
}

// MinifloatScratch returns the length in floats of the scratch of MulMinifloat.
func (s *Kernels) MinifloatScratch(p *quant.Packed, rows, tokens, n int) int {
	return s.minifloat.scratchFloats(p, rows, tokens, n)
}

// MulMinifloat sets y[t][i] = Σ_k w[row + i·step][k] · x[t][k] for i < rows, the tokens of a packed
// group and n columns of p. HasMinifloat must have returned true for them. It panics if y, x, scratch, codes or scales
// are too short. It may prefetch the next rows, as many as it multiplies.
func (s *Kernels) MulMinifloat(y mat.Floats, w quant.View, x, scratch []float32, tokens int) {
	p, row, step, rows, n := w.Packed, w.Row, w.Step, w.Rows, w.Cols
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, rows)
	x, scratch = x[:tokens*s.MinifloatFloats(p, n)], scratch[:s.MinifloatScratch(p, rows, tokens, n)]
	last := row + (rows-1)*step
	if storedAsMXFP4(p) {
		_, _ = p.Codes[:last*p.Width/2+n/2], p.Scales[:last*p.Width/minifloatBlock+n/minifloatBlock]
	} else {
		_, _ = p.Codes[:last*p.Width+n], p.Scales[:scaleBytes(p)*((last/p.Rows)*mat.CeilDiv(p.Width, p.Columns)+mat.CeilDiv(n, p.Columns))]
	}
	s.minifloat.mulRows(y, w, x, scratch, tokens)
}
