package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// A float32 is the sum of three bfloat16 numbers: the nearest one, the one nearest to the rest,
// and so on. Tiles multiply bfloat16 so much faster than float32 that the six significant
// products of parts take less time than one float32 product. Operands are in packs of 16 rows and
// panels of 16 columns, as for [Kernels.Tile], one part after another.

// The numbers of parts that operands are split into.
const (
	RoundedParts = 1 // rounds to bfloat16; exact for bfloat16 numbers
	FloatParts   = 3 // keeps the numbers to 24 bits
)

// parter is implemented by variants with tiles for parts. The caller has checked bounds.
type parter interface {
	packParts(dst []uint32, apart int, x mat.Floats, l PartsLayout)
	packBFloat16(dst []uint32, w mat.Weights, columns, transposed bool, width, n int)
	mulParts(c mat.Floats, a, b Packs, blocks, couples int, add bool)
}

// Packs are packs of a left operand or panels of a right one, stored one after another. Each has
// Parts parts of Words words. PanelWords returns the number of words.
type Packs struct {
	V            []uint32
	Parts, Words int
}

// Size returns the length of a pack in words.
func (p Packs) Size() int { return p.Parts * p.Words }

// From returns p from the given pack on, and all packs from the given block of terms on.
func (p Packs) From(pack, block int) Packs {
	p.V = p.V[pack*p.Size()+block*blockWords:]
	return p
}

// blockWords is the length in words of a block of a part.
const blockWords = BlockK / 2 * PackRows

// Check panics unless the given blocks of the first packs lie inside.
func (p Packs) Check(packs, blocks int) {
	_ = p.V[:packs*p.Size()-p.Words+blocks*blockWords]
}

// HasParts reports whether the variant has PackParts and MulParts for the given number of parts.
// If it has them for FloatParts, the right operand may have RoundedParts. Their sums are float32.
// Parts too small to be normal count as 0, and an infinity results in NaNs.
func (s *Kernels) HasParts(parts int) bool {
	return s.rounder != nil && (parts == RoundedParts || s.variant.AMX)
}

// PartsLayout describes how [Kernels.PackParts] packs a matrix: in a pack of up to 16 rows of a
// left operand or, with Panel, in a panel of up to 16 columns of a right one. Width is the number
// of rows or columns, N that of their terms, and Parts that of their parts. Each is a row of the
// matrix with N numbers or, with Lines, a column with N rows.
type PartsLayout struct {
	Panel, Lines    bool
	Parts, Width, N int
}

// PackParts packs x in the layout l and pads it with zeros. Each part has PanelWords(N) words.
// Parts begin apart words apart.
func (s *Kernels) PackParts(dst []uint32, apart int, x mat.Floats, l PartsLayout) {
	words := PanelWords(l.N)
	dst = dst[:(l.Parts-1)*apart+words]
	if !l.Lines && l.Width < PackRows || l.Width <= 0 { // the kernels write only what is there
		for part := range l.Parts {
			clear(dst[part*apart:][:words])
		}
	}
	switch {
	case l.Width <= 0 || l.N <= 0:
		return
	case l.Lines:
		x.Check(l.N, l.Width)
	default:
		x.Check(l.Width, l.N)
	}
	l.Width = min(l.Width, PackRows)
	s.rounder.packParts(dst, apart, x, l)
}

// PackBFloat16 is PackParts for bfloat16 numbers, which have one part.
func (s *Kernels) PackBFloat16(dst []uint32, w mat.Weights, panel, lines bool, width, n int) {
	dst = dst[:PanelWords(n)]
	if !lines && width < PackRows || width <= 0 {
		clear(dst)
	}
	switch {
	case width <= 0 || n <= 0:
		return
	case lines:
		w.Check(n, width)
	default:
		w.Check(width, n)
	}
	s.rounder.packBFloat16(dst, w, !lines, lines != panel, min(width, PackRows), n)
}

// MulParts computes c for the 32 rows of two consecutive packs and 32 · couples columns of
// consecutive panels, over blocks of 32 terms. If add is set, the sums are added to c. Products
// of small parts are added first. Both operands have the same number of parts, or b has one.
func (s *Kernels) MulParts(c mat.Floats, a, b Packs, blocks, couples int, add bool) {
	if blocks <= 0 || couples <= 0 {
		return
	}
	c.Check(2*PackRows, 2*PanelTokens*couples)
	a.Check(2, blocks)
	b.Check(2*couples, blocks)
	s.rounder.mulParts(c, a, b, blocks, couples, add)
}
