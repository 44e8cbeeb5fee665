// Package matmul multiplies large float32 matrices, such as those of training.
//
// A [Multiplier] computes c = a·b or c += a·b. Its operands may be stored by rows or by columns
// ([Matrix]), so it serves the three products of a layer: x·Wᵀ, dy·W and dyᵀ·x. It copies blocks
// of both operands into panels that fit in caches and that threads share, and multiplies the
// panels with package gemm's kernels. These compute in float32 or, if the processor has such
// kernels, on operands rounded to bfloat16 with float32 sums.
//
// # Order of summation
//
// A sum of n products is divided into blocks by n alone. Each block is summed in ascending order,
// and blocks are added in ascending order. A result therefore does not depend on the number of
// threads or on the rows and columns that are computed together.
//
// The package starts no threads: its caller provides a function that runs units of work. It knows
// nothing of tensors or layers.
package matmul
