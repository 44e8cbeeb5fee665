package gemm

import "github.com/heftai/heft/internal/kernels/mat"

// StepTiles holds the operands of [Kernels.TileSteps]: two or four Packs W and a number of panels
// X over Blocks blocks of 32 k, one after another. C is the sums: PanelTokens for each row of the
// packs, panel after panel. If Add is set, the sums continue from C. Next is the rows to pack
// next, as many as the packs have; some of them are prefetched with each panel. Its Data may be
// nil.
type StepTiles struct {
	C                     []float32
	W, X                  []uint32
	Packs, Blocks, Panels int
	Add                   bool
	Next                  mat.Weights
}

// StepBlocks is the number of blocks for which TileSteps is fastest: four packs of them fill two
// thirds of a first-level cache of 48 KiB. It does not depend on the number of packs, so that
// products of one input share its panels.
const StepBlocks = 8

// TileSteps is Tile for the operands of one step of k, each contiguous in memory. Only AMX has
// it. Its sums have the bits of Tile. With four packs it reads panels half as often as with two.
// It takes a pointer because copying operands that were just written would wait for all stores of
// the previous call, which go to the second-level cache.
func (s *Kernels) TileSteps(t *StepTiles) {
	if t.Blocks <= 0 || t.Panels <= 0 {
		return
	}
	words := t.Blocks * BlockK / 2 * PackRows
	_, _, _ = t.W[:t.Packs*words], t.X[:words*t.Panels], t.C[:t.Packs*PackRows*PanelTokens*t.Panels]
	s.rounder.tileSteps(t)
}

// PackPiece packs up to 16 rows for each of some consecutive packs, as PackWeights does for one.
// It expects the rows in the second-level cache, to which TileSteps prefetches them, and
// prefetches nothing. Only AMX has it.
func (s *Kernels) PackPiece(dst []uint32, w mat.Weights, rows, n, packs int) {
	if rows > 0 {
		w.Check(rows, n)
	}
	s.rounder.packPiece(dst[:packs*PanelWords(n)], w, rows, n, packs)
}

// StepSums holds the operands of [Kernels.StoreSteps]: the sums C of Rows rows and up to 16
// Tokens. They are in pieces of Packs packs, which begin Stride sums apart. Bias has a number for
// each row, or is nil. If Past is set, the results Y are stored with non-temporal stores, which
// is faster if they would not stay in the caches.
type StepSums struct {
	Y            mat.Floats
	C            []float32
	Stride       int
	Bias         []float32
	Packs        int
	Rows, Tokens int
	Past         bool
}

// StoreSteps sets y[t][r] = c[r][t] + bias[r] for sums of TileSteps, from one panel of each
// piece.
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
