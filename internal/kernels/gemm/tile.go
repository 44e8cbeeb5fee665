package gemm

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// Tiles is the operands of [Kernels.Tile] and [Kernels.Couple]: packs W and panels X, which begin
// WStride and XStride words apart, over Blocks blocks of 32 k. Count is the pairs of panels for
// Tile, of packs for Couple. With Add the sums continue from C.
type Tiles struct {
	C                mat.Floats
	W, X             []uint32
	WStride, XStride int
	Blocks, Count    int
	Add              bool
}

// RowTiles is the operands of [Kernels.TileRows]: Rows rows of weights as they are stored and one
// or two Panels of tokens, which begin XStride words apart, over Blocks blocks of 32 k.
type RowTiles struct {
	C            []float32
	W            mat.Weights
	X            []uint32
	XStride      int
	Panels, Rows int
	Blocks       int
	Fetch        Fetch
}

// Couple is [Kernels.Tile] for groups of 32 rows, whose packs begin ws words apart, and 32 tokens.
func (s *Kernels) Couple(t Tiles) {
	if t.Blocks <= 0 || t.Count <= 0 {
		return
	}
	t.C.Check(2*PackRows*t.Count, 2*PanelTokens)
	_ = t.W[:(2*t.Count-1)*t.WStride+t.Blocks*BlockK/2*PackRows]
	_ = t.X[:t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.couple(t)
}

// The shapes of packs and panels. A panel holds 16 tokens, a pack 16 rows of weights, and
// both are filled up with zeros to whole blocks of k.
const (
	PanelTokens = 16
	PackRows    = 16
	BlockK      = 32
)

// PanelWords is the length in words of a panel or a pack of n elements a row.
func PanelWords(n int) int { return mat.CeilDiv(n, BlockK) * BlockK / 2 * PanelTokens }

// PackTokens rounds up to 16 rows of x into a panel: for each pair of k the pairs of all
// tokens. With fewer the rest is zeros; tokens may be 0.
func (s *Kernels) PackTokens(dst []uint32, x mat.Floats, tokens, n int) {
	if tokens > 0 {
		x.Check(tokens, n)
	}
	s.rounder.packTokens(dst[:PanelWords(n)], x, tokens, n)
}

// PackWeights copies up to 16 rows of bfloat16 weights into a pack: for each block of 32
// k the rows' pairs. With fewer the rest is zeros; rows may be 0.
func (s *Kernels) PackWeights(dst []uint32, w mat.Weights, rows, n int) {
	if rows > 0 {
		w.Check(rows, n)
	}
	s.rounder.packRows(dst[:PanelWords(n)], w, rows, n)
}

// Tile computes c[r][t] for the 32 rows of two packs, which begin ws words apart, and 32 · couples
// tokens, whose panels begin xs words apart, over blocks of 32 k from where w and x begin. With add
// the sums continue from c. Each element is one sum in ascending order of the blocks, however it is
// divided into calls. With AMX it takes one pair of panels after the other: prompts use [Kernels.TileSteps] there.
func (s *Kernels) Tile(t Tiles) {
	if t.Blocks <= 0 || t.Count <= 0 {
		return
	}
	t.C.Check(2*PackRows, 2*PanelTokens*t.Count)
	_ = t.W[:t.WStride+t.Blocks*BlockK/2*PackRows]
	_ = t.X[:(2*t.Count-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.tile(t)
}

// Fetch says what a kernel prefetches while it computes: a part of Next as large as its own
// weights. Of its quarters Done are fetched already, and Quarters follow.
type Fetch struct {
	Next           []byte
	Done, Quarters int
}

// CoupleTokens is the number of tokens that are multiplied together, and of sums in a row of
// [Kernels.TileRows].
const CoupleTokens = 2 * PanelTokens

// TileRows computes c[r][t] for rows of bfloat16 weights in place, a multiple of 16, and one or two
// panels of tokens, which begin xs words apart. Rows of c have CoupleTokens sums. Its sums have the
// bits of Tile. The call before should have prefetched weights that are in no cache.
func (s *Kernels) TileRows(t RowTiles) {
	if t.Rows <= 0 || t.Panels <= 0 || t.Blocks <= 0 {
		return
	}
	t.W.Check(t.Rows, t.Blocks*BlockK)
	_ = t.X[:(t.Panels-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	t.C = t.C[:t.Rows*CoupleTokens]
	s.rounder.tileRows(t)
}

// TilePack is Tile for the 16 rows of a pack and one or two panels, which t.Count says.
func (s *Kernels) TilePack(t Tiles) {
	if t.Count <= 0 || t.Blocks <= 0 {
		return
	}
	t.C.Check(PackRows, PanelTokens*t.Count)
	_ = t.W[:t.Blocks*BlockK/2*PackRows]
	_ = t.X[:(t.Count-1)*t.XStride+t.Blocks*BlockK/2*PanelTokens]
	s.rounder.tilePack(t)
}

// Transpose sets y[t][r] = c[r][t] + bias[r] for up to 16 rows; bias may be nil. c has 16 rows
// of tokens filled up to a multiple of 16.
func (s *Kernels) Transpose(y, c mat.Floats, bias []float32, rows, tokens int) {
	if rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, rows)
	c.Check(PackRows, mat.CeilDiv(tokens, PanelTokens)*PanelTokens)
	if bias != nil {
		bias = bias[:rows]
	}
	s.rounder.turn(y, c, bias, rows, tokens)
}
