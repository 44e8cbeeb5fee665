package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// A float32 is the sum of three numbers in bfloat16: the nearest one, the nearest to the rest, and
// so on. Tiles multiply bfloat16 so much faster than float32 that the six significant products of
// parts take less time than one product of floats. Operands are in packs of 16 rows and panels of
// 16 columns, as for [Kernels.Tile], one part after another.

// The parts of a number that operands are made of.
const (
	RoundedParts = 1 // rounds to bfloat16, and is all of a number that is one
	FloatParts   = 3 // leaves the numbers as they are, to 24 bits
)

// parter is what a variant with tiles for parts implements. Bounds have been checked.
type parter interface {
	packParts(dst []uint32, apart int, x mat.Floats, l PartsLayout)
	packBFloat16(dst []uint32, w mat.Weights, columns, turn bool, width, n int)
	mulParts(c mat.Floats, a, b Packs, blocks, couples int, add bool)
}

// Packs are packs of a left operand or panels of a right one, one after another. Each has
// Parts parts of Words words, which PanelWords tells for the terms it holds.
type Packs struct {
	V            []uint32
	Parts, Words int
}

// Size is the length in words of a pack.
func (p Packs) Size() int { return p.Parts * p.Words }

// From is p from a pack on, and of all packs from a block of terms on.
func (p Packs) From(pack, block int) Packs {
	p.V = p.V[pack*p.Size()+block*blockWords:]
	return p
}

// blockWords is the length of a block of a part.
const blockWords = BlockK / 2 * PackRows

// check panics unless blocks of the first packs lie inside.
func (p Packs) Check(packs, blocks int) {
	_ = p.V[:packs*p.Size()-p.Words+blocks*blockWords]
}

// HasParts reports whether the variant has PackParts and MulParts of so many parts; where it has
// those of FloatParts, the right operand may have RoundedParts. Sums are float32 in them; parts too
// small to be normal count as zero, and an infinity makes NaNs.
func (s *Kernels) HasParts(parts int) bool {
	return s.rounder != nil && (parts == RoundedParts || s.variant.AMX)
}

// PartsLayout says what [Kernels.PackParts] makes of a matrix: a pack of up to 16 rows of a left
// operand, or a Panel of up to 16 columns of a right one, Width of them with N terms each, in Parts
// parts. The matrix has them as rows of N numbers, or with Lines as columns of N rows.
type PartsLayout struct {
	Panel, Lines    bool
	Parts, Width, N int
}

// PackParts packs x in the layout l and pads with zeros. Each part has PanelWords(N) words, and
// parts are apart words apart.
func (s *Kernels) PackParts(dst []uint32, apart int, x mat.Floats, l PartsLayout) {
	words := PanelWords(l.N)
	dst = dst[:(l.Parts-1)*apart+words]
	if !l.Lines && l.Width < PackRows || l.Width <= 0 { // the kernels write what is there
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

// PackBFloat16 is PackParts of bfloat16 numbers, which have one part.
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

// MulParts computes c for the 32 rows of two packs one after another and 32 · couples columns, in
// panels one after another, over blocks of 32 terms of a sum. With add the sums are added to c.
// Products of small parts are added first. Both operands have equally many parts, or b has one.
func (s *Kernels) MulParts(c mat.Floats, a, b Packs, blocks, couples int, add bool) {
	if blocks <= 0 || couples <= 0 {
		return
	}
	c.Check(2*PackRows, 2*PanelTokens*couples)
	a.Check(2, blocks)
	b.Check(2*couples, blocks)
	s.rounder.mulParts(c, a, b, blocks, couples, add)
}
