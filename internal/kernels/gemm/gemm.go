// Package gemm multiplies matrices whose operands are packed: panels of float32, groups of rows and
// tokens for dot products, and packs and panels of bfloat16 for AVX-512 BF16 and the tiles of AMX.
//
// # Order of summation
//
// [Kernels.SumPanels] and [Kernels.MulSmallBatch] have one sum for each element, in ascending k,
// however it is divided into calls. [Kernels.MulGroups] gives the bits of a dot product (package
// gemv), and is the fastest way to compute that order for many tokens. [Kernels.Tile] multiplies
// activations rounded to bfloat16, in an order of its own that depends on the length alone; with
// AMX [Kernels.TileRows] reads weights in place, in the order of Tile, and [Kernels.TileFew] has
// that order too. [Kernels.MulParts] splits float32 numbers into three of bfloat16 for the products
// of training.
package gemm

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Kernels are the products of one variant. They have no state: any number of goroutines may use
// them at once.
type Kernels struct {
	// GroupTokens is the number of tokens that a group packs together; 0: see [Kernels.HasGroups].
	GroupTokens int

	variant      isa.Variant
	vector       vector.Kernels
	ops          ops
	grouper      grouper      // nil: there are no groups
	smallBatches smallBatcher // nil: nor products of few tokens with weights that are transposed in registers
	rounder      rounder      // nil: activations are never rounded
}

// For returns the products of v.
func For(v isa.Variant) Kernels {
	k := Kernels{variant: v, vector: vector.For(v), ops: opsOf(v), grouper: grouperOf(v), smallBatches: smallBatcherOf(v), rounder: rounderOf(v)}
	switch v.Level {
	case isa.AVX512:
		k.GroupTokens = 8
	case isa.AVX2:
		k.GroupTokens = 4
	}
	return k
}

// ops is implemented by each variant. The caller has checked bounds.
type ops interface {
	panels
	prompter
}

// goOps is the reference. Products are rounded before they are added (the conversions to float32
// forbid fusing), so that every GOARCH computes the same bits.
type goOps struct{}

// rounder is what a variant that multiplies bfloat16 by bfloat16 implements. Bounds have been
// checked.
type rounder interface {
	packTokens(dst []uint32, x mat.Floats, tokens, n int)
	packRows(dst []uint32, w mat.Weights, rows, n int)
	packPiece(dst []uint32, w mat.Weights, rows, n, packs int)
	tile(t Tiles)
	tileRows(t RowTiles)
	tilePack(t Tiles)
	tileSteps(t *StepTiles)
	storeSteps(t *StepSums)
	turn(y, c mat.Floats, bias []float32, rows, tokens int)
	couple(t Tiles)
	transposePack(w []uint32, blocks int)
	tileFew(t FewTiles)
	parter
}
