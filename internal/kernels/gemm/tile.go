package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Tiles holds the operands of [Kernels.Tile] and [Kernels.Couple]: packs W and panels X, which
// begin WStride and XStride words apart, over Blocks blocks of 32 k. Count is the number of pairs
// of panels for Tile, and of packs for Couple. If Add is set, the sums continue from C.
type Tiles struct {
	C                mat.Floats
	W, X             []uint32
	WStride, XStride int
	Blocks, Count    int
	Add              bool
	Next             []byte
}

// RowTiles holds the operands of [Kernels.TileRows]: Rows rows of stored weights and up to
// MostRowPanels Panels of tokens, which begin XStride words apart, over Blocks blocks of 32 k.
type RowTiles struct {
	C            []float32
	W            mat.Weights
	X            []uint32
	XStride      int
	Panels, Rows int
	Blocks       int
	Fetch        Fetch
}

// Couple is [Kernels.Tile] for groups of 32 rows, whose packs begin WStride words apart, and 32
// tokens.
func (s *Kernels) Couple(t Tiles) {
	if t.Blocks <= 0 || t.Count <= 0 {
		return
	}
	t.C.Check(2*PackRows*t.Count, 2*PanelTokens)
	_ = t.W[:(2*t.Count-1)*t.WStride+t.Blocks*BlockK/2*PackRows]
	_ = t.X[:t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.couple(t)
}

// The shapes of packs and panels. A panel holds 16 tokens and a pack holds 16 rows of weights.
// Both are padded with zeros to whole blocks of k.
const (
	PanelTokens = 16
	PackRows    = 16
	BlockK      = 32
)

// PanelWords returns the length in words of a panel or a pack of n elements per row.
func PanelWords(n int) int { return mat.CeilDiv(n, BlockK) * BlockK / 2 * PanelTokens }

// PackTokens rounds up to 16 rows of x to bfloat16 and packs them in a panel: for each pair of k,
// the pairs of all tokens. With fewer tokens the rest is 0. tokens may be 0.
func (s *Kernels) PackTokens(dst []uint32, x mat.Floats, tokens, n int) {
	if tokens > 0 {
		x.Check(tokens, n)
	}
	s.rounder.packTokens(dst[:PanelWords(n)], x, tokens, n)
}

// PackWeights copies up to 16 rows of bfloat16 weights into a pack: for each block of 32 k, the
// pairs of all rows. With fewer rows the rest is 0. rows may be 0.
func (s *Kernels) PackWeights(dst []uint32, w mat.Weights, rows, n int) {
	if rows > 0 {
		w.Check(rows, n)
	}
	s.rounder.packRows(dst[:PanelWords(n)], w, rows, n)
}

// Tile computes C[r][t] for the 32 rows of two packs, which begin WStride words apart, and 32 ·
// Count tokens, whose panels begin XStride words apart, over blocks of 32 k. If Add is set, the
// sums continue from C. Each element is one sum in ascending order of the blocks, however it is
// divided into calls. With AMX it computes one pair of panels after another; prompts use
// [Kernels.TileSteps] there.
func (s *Kernels) Tile(t Tiles) {
	if t.Blocks <= 0 || t.Count <= 0 {
		return
	}
	t.C.Check(2*PackRows, 2*PanelTokens*t.Count)
	_ = t.W[:t.WStride+t.Blocks*BlockK/2*PackRows]
	_ = t.X[:(2*t.Count-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.tile(t)
}

// Fetch describes what a kernel prefetches while it computes: a part of Next that is as large as
// its own weights. Done quarters of the part are already fetched, and Quarters follow.
type Fetch struct {
	Next           []byte
	Done, Quarters int
}

// CoupleTokens is the number of tokens multiplied together.
const CoupleTokens = 2 * PanelTokens

// MostRowPanels is the largest number of panels of [Kernels.TileRows].
const MostRowPanels = 4

// RowSums returns the number of sums in a row of [Kernels.TileRows]: those of one or two couples of
// panels.
func RowSums(panels int) int { return mat.CeilDiv(panels, 2) * CoupleTokens }

// TileRows computes C[r][t] for rows of bfloat16 weights in place, a multiple of 16, and up to
// four panels of tokens, which begin XStride words apart. Rows of C have RowSums sums. The sums have the bits of Tile. If the weights are in no cache, the previous call should have
// prefetched them. All rows pass a step of the panels before the next step, so that the panels
// stay in the first-level cache.
func (s *Kernels) TileRows(t RowTiles) {
	if t.Rows <= 0 || t.Panels <= 0 || t.Blocks <= 0 {
		return
	}
	t.W.Check(t.Rows, t.Blocks*BlockK)
	_ = t.X[:(t.Panels-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	t.C = t.C[:t.Rows*RowSums(t.Panels)]
	s.rounder.tileRows(t)
}

// TilePack is Tile for the 16 rows of one pack and one or two panels, of which t.Count is the
// number.
func (s *Kernels) TilePack(t Tiles) {
	if t.Count <= 0 || t.Blocks <= 0 {
		return
	}
	t.C.Check(PackRows, PanelTokens*t.Count)
	_ = t.W[:t.Blocks*BlockK/2*PackRows]
	_ = t.X[:(t.Count-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.tilePack(t)
}

// Transpose sets y[t][r] = c[r][t] + bias[r] for up to 16 rows; bias may be nil. c has 16 rows of
// tokens, padded to a multiple of 16.
func (s *Kernels) Transpose(y, c mat.Floats, bias []float32, rows, tokens int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, rows)
	c.Check(PackRows, mat.CeilDiv(tokens, PanelTokens)*PanelTokens)
	if bias != nil {
		bias = bias[:rows]
	}
	s.rounder.transposeSums(y, c, bias, rows, tokens)
}
