// Package qgemm multiplies quantised weights without widening them in memory first: interleaved
// blocks of q8_0 and q4_0 by floats or by activations rounded to eight bits, rows of other GGUF blocks by
// such activations, and FP8 and MXFP4 codes by few tokens. It also packs quantised weights for the bfloat16 products of package gemm.
//
// # Order of summation
//
// [Kernels.MulInterleaved] has the order of gemm's SumPanels. [Kernels.MulInt8] has one order for
// any number of tokens, the same in all variants. So has [Kernels.MulRows]; see rows.go.
// [Kernels.MulMinifloat] has one order for any number of tokens.
package qgemm

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Kernels are the products of one variant. They have no state: any number of goroutines may use
// them at once.
type Kernels struct {
	ops       summer
	minifloat minifloatKernels // nil if the variant has no products of FP8 and MXFP4 weights
	integers  integers         // nil: activations are never rounded to integers
	rower     rower            // nil: nor for rows of GGUF blocks
	packer    packer           // nil: nor to bfloat16
	quant     quant.Kernels
	vector    vector.Kernels
	gemm      gemm.Kernels
}

// For returns the products of v.
func For(v isa.Variant) Kernels {
	return Kernels{
		ops: summerOf(v), minifloat: minifloatOf(v), integers: integersOf(v), rower: rowerOf(v), packer: packerOf(v),
		quant: quant.For(v), vector: vector.For(v), gemm: gemm.For(v),
	}
}

// goOps is the reference.
type goOps struct{}
