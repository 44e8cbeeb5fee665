package kernels

// A float32 is the sum of three numbers in bfloat16: the nearest one, the nearest to what
// that leaves, and so on. Tiles multiply bfloat16 so much faster than floats that six
// products of parts, those that matter, take less time than one of floats. Operands lie in
// packs of 16 rows and panels of 16 columns, as for [Set.Tile], one part after another.

// The parts of a number that operands are made of.
const (
	RoundedParts = 1 // rounds to bfloat16
	FloatParts   = 3 // leaves the numbers as they are, to 24 bits
)

// parter is what a variant with tiles for parts implements. Bounds have been checked.
type parter interface {
	packPart(dst []uint32, x Floats, columns, turn bool, part, width, n int)
	mulParts(c Floats, a, b []uint32, parts, blocks, couples int, add bool)
}

// HasParts reports whether PackParts and MulParts of so many parts are the fastest way to
// multiply. Sums are float32 in them; parts too small to be normal count as zero, and an
// infinity makes NaNs.
func (s *Set) HasParts(parts int) bool {
	return s.parter() != nil && (s.TilesRows() || parts == RoundedParts && !s.SlowPairs)
}

func (s *Set) parter() parter {
	p, _ := s.rounder.(parter)
	return p
}

// PackParts makes parts of up to 16 rows of a left operand, a pack, or with panel of up to
// 16 columns of a right one. They are rows of x, of n numbers each, or with lines columns of
// n rows. Zeros fill up. Each part has PanelWords(n) words; they begin apart words from one
// another.
func (s *Set) PackParts(dst []uint32, apart int, x Floats, panel, lines bool, parts, width, n int) {
	words := PanelWords(n)
	dst = dst[:(parts-1)*apart+words]
	switch {
	case width <= 0 || n <= 0:
		for part := range parts {
			clear(dst[part*apart:][:words])
		}
		return
	case lines:
		x.check(n, width)
	default:
		x.check(width, n)
	}
	p := s.parter()
	for part := range parts {
		p.packPart(dst[part*apart:][:words], x, !lines, lines != panel, part, min(width, PackRows), n)
	}
}

// MulParts computes c for the 32 rows of two packs one after another and 32 · couples
// columns, in panels one after another, over blocks of 32 terms of a sum. With add the sums
// are added to what c has. The products of small parts come first.
func (s *Set) MulParts(c Floats, a, b []uint32, parts, blocks, couples int, add bool) {
	if blocks <= 0 || couples <= 0 {
		return
	}
	size := parts * blocks * BlockK / 2 * PackRows
	c.check(2*PackRows, 2*PanelTokens*couples)
	_, _ = a[:2*size], b[:2*couples*size]
	s.parter().mulParts(c, a, b, parts, blocks, couples, add)
}
