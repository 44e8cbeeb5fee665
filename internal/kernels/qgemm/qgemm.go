// Package qgemm multiplies quantised weights without dequantising them in memory first. It
// multiplies interleaved blocks of q8_0 and q4_0 by floats or by activations rounded to 8 bits,
// rows of other GGUF blocks by such activations, and FP8 and MXFP4 codes by few tokens. It also
// packs quantised weights for package gemm's bfloat16 products.
//
// # Order of summation
//
// [Kernels.MulInterleaved] has the order of gemm's SumPanels. [Kernels.MulInt8] and
// [Kernels.MulRows] each have one order for any number of tokens, which is the same in all
// variants; see rows.go. [Kernels.MulMinifloat] has one order for any number of tokens in each
// variant.
package qgemm

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

// Kernels are the products of one variant with quantised weights. They are stateless and safe for
// concurrent use.
type Kernels struct {
	ops       summer
	minifloat minifloatKernels // nil if the variant has no products of FP8 and MXFP4 weights
	integers  integers         // nil if activations are never rounded to integers
	rower     rower            // nil if there are no products of GGUF rows and rounded activations
	packer    packer           // nil if weights are never packed in bfloat16
	quant     quant.Kernels
	vector    vector.Kernels
	gemm      gemm.Kernels
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	return Kernels{
		ops: summerOf(v), minifloat: minifloatOf(v), integers: integersOf(v), rower: rowerOf(v), packer: packerOf(v),
		quant: quant.For(v), vector: vector.For(v), gemm: gemm.For(v),
	}
}

// goOps is the reference implementation.
type goOps struct{}
