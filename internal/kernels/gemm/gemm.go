// Package gemm multiplies matrices with packed operands: panels of float32, groups of rows and
// tokens for dot products, and packs and panels of bfloat16 for AVX-512 BF16 and the tiles of
// AMX.
//
// # Order of summation
//
// [Kernels.SumPanels] and [Kernels.MulSmallBatch] compute each element as one sum in ascending k,
// however the sum is divided into calls. [Kernels.MulGroups] has the bits of a dot product
// (package gemv) and is the fastest way to compute that order for many tokens. [Kernels.Tile]
// multiplies activations rounded to bfloat16, in an order of its own that depends only on the
// length. With AMX, [Kernels.TileRows] reads weights in place, in the order of Tile.
// [Kernels.TileFew] has that order too. [Kernels.MulParts] splits float32 numbers into three
// bfloat16 numbers each, for the products of training.
package gemm

import (
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Kernels are the matrix products of one variant. They are stateless and safe for concurrent use.
type Kernels struct {
	// GroupTokens is the number of tokens that a group packs together, or 0 if there are no
	// groups; see [Kernels.HasGroups].
	GroupTokens int

	variant      isa.Variant
	vector       vector.Kernels
	ops          ops
	grouper      grouper      // nil if there are no groups
	smallBatches smallBatcher // nil if there are no products of few tokens with weights transposed in registers
	rounder      rounder      // nil if activations are never rounded
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

// goOps is the reference implementation. It rounds products before it adds them (the conversions
// to float32 forbid fusing), so that every GOARCH computes the same bits.
type goOps struct{}

// rounder is implemented by variants that multiply bfloat16 by bfloat16. The caller has checked
// bounds.
type rounder interface {
	packTokens(dst []uint32, x mat.Floats, tokens, n int)
	packRows(dst []uint32, w mat.Weights, rows, n int)
	packPiece(dst []uint32, w mat.Weights, rows, n, packs int)
	tile(t Tiles)
	tileRows(t RowTiles)
	tilePack(t Tiles)
	tileSteps(t *StepTiles)
	storeSteps(t *StepSums)
	transposeSums(y, c mat.Floats, bias []float32, rows, tokens int)
	couple(t Tiles)
	transposePack(w []uint32, blocks int)
	transposeRows(dst []uint32, w mat.Weights, blocks int)
	tileFew(t FewTiles)
	parter
}
