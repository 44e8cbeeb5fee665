package gemm

import "github.com/heftai/heft/internal/kernels/mat"

// FewTokens is the number of tokens up to which [Kernels.TileFew] is faster than [Kernels.Tile], which
// computes 32 tokens even for one.
const FewTokens = 24

// FewTiles holds the operands of [Kernels.TileFew]: the products Y of Rows rows with Tokens
// tokens, over Blocks blocks of 32 k. W is two packs that [Kernels.TransposePack] has transposed,
// WStride words apart. X is one panel of tokens. The kernel prefetches the start of Next into the
// second-level cache, as many bytes as W has. Next may be nil.
type FewTiles struct {
	Y            mat.Floats
	W, X         []uint32
	WStride      int
	Blocks       int
	Rows, Tokens int
	Next         []byte
}

// TransposePack transposes the blocks of a pack in place, for [Kernels.TileFew].
func (s *Kernels) TransposePack(w []uint32, blocks int) {
	if blocks > 0 {
		s.rounder.transposePack(w[:blocks*BlockK/2*PackRows], blocks)
	}
}

// TransposeRows packs 16 rows of w over some blocks and transposes the pack, for
// [Kernels.TileFew]. It reads 16 rows at once, which is slow unless they are in a cache.
func (s *Kernels) TransposeRows(dst []uint32, w mat.Weights, blocks int) {
	if blocks > 0 {
		w.Check(PackRows, blocks*BlockK)
		s.rounder.transposeRows(dst[:blocks*BlockK/2*PackRows], w, blocks)
	}
}

// TileFew sets y[t][r] = Σ w[r][k] · x[t][k] for up to 32 rows and 16 tokens. Its sums have the
// bits of [Kernels.Tile], but its lanes are rows instead of tokens.
func (s *Kernels) TileFew(t FewTiles) {
	if t.Blocks <= 0 || t.Rows <= 0 || t.Tokens <= 0 {
		return
	}
	t.Rows, t.Tokens = min(t.Rows, 2*PackRows), min(t.Tokens, PanelTokens)
	t.Y.Check(t.Tokens, t.Rows)
	_ = t.W[:t.WStride+t.Blocks*BlockK/2*PackRows]
	_ = t.X[:t.Blocks*BlockK/2*PanelTokens]
	s.rounder.tileFew(t)
}
