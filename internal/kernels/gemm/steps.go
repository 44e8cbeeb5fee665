package gemm

import "github.com/heftai/heft/internal/kernels/mat"

// StepTiles is the operands of [Kernels.TileSteps]: two or four Packs W and a number of panels X over Blocks blocks of 32 k,
// one after the other, and the sums C: PanelTokens for each row of the packs, panel after panel. With Add the sums continue
// from C. Next are rows that are packed next, as many as the packs have, of which some are prefetched beside each
// panel; its Data may be nil.
type StepTiles struct {
	C                     []float32
	W, X                  []uint32
	Packs, Blocks, Panels int
	Add                   bool
	Next                  mat.Weights
}

// StepBlocks is the number of blocks for which TileSteps is fastest: four packs fill two thirds of a first-level cache of
// 48 KiB. It does not depend on the packs, so that products of one input share its panels.
const StepBlocks = 8

// TileSteps is Tile for operands of one step of k, which lie in one piece each. Only AMX has it. Its sums have the
// bits of Tile. With four packs it reads panels half as often as with two. It takes a pointer because a copy of operands that were
// just set waits for all stores of the call before, which go to the second-level cache.
func (s *Kernels) TileSteps(t *StepTiles) {
	if t.Blocks <= 0 || t.Panels <= 0 {
		return
	}
	words := t.Blocks * BlockK / 2 * PackRows
	_, _, _ = t.W[:t.Packs*words], t.X[:words*t.Panels], t.C[:t.Packs*PackRows*PanelTokens*t.Panels]
	s.rounder.tileSteps(t)
}

// PackPiece packs up to 16 rows for each of some packs, one after another, as PackWeights packs those of one. It expects rows in
// the second-level cache, to which TileSteps has prefetched them, and prefetches nothing. Only AMX has it.
func (s *Kernels) PackPiece(dst []uint32, w mat.Weights, rows, n, packs int) {
	if rows > 0 {
		w.Check(rows, n)
	}
	s.rounder.packPiece(dst[:packs*PanelWords(n)], w, rows, n, packs)
}

// StepSums is the operands of [Kernels.StoreSteps]: the sums C of Rows rows and up to 16 Tokens. They are those of pieces
// of Packs packs, which begin Stride sums apart. Bias has a number for each row, or is nil. With Past the results Y are stored
// past the caches, which is faster where they would not stay there.
type StepSums struct {
	Y            mat.Floats
	C            []float32
	Stride       int
	Bias         []float32
	Packs        int
	Rows, Tokens int
	Past         bool
}

// StoreSteps sets y[t][r] = c[r][t] + bias[r] for sums of TileSteps, of one panel of each piece.
func (s *Kernels) StoreSteps(t *StepSums) {
	if t.Rows <= 0 || t.Tokens <= 0 {
		return
	}
	t.Y.Check(t.Tokens, t.Rows)
	piece := t.Packs * PackRows
	last := (t.Rows - 1) / piece
	_ = t.C[:last*t.Stride+mat.CeilDiv(t.Rows-last*piece, PackRows)*PackRows*PanelTokens]
	if t.Bias != nil {
		_ = t.Bias[:t.Rows]
	}
	s.rounder.storeSteps(t)
}
