// Package matmul multiplies float32 matrices that are large, as training has them.
//
// A [Multiplier] computes c = a·b or c += a·b. Its operands may lie by rows or by columns
// ([Matrix]), so it serves the three products of a layer: x·Wᵀ, dy·W and dyᵀ·x. It copies
// blocks of both operands into panels that caches hold, which threads share, and runs the
// kernels' packed products over them; either in float32, or rounded to bfloat16 with sums
// in float32, where the processor has such products.
//
// # Order of summation
//
// A sum of n products is cut into blocks by n alone, each is added up in ascending order
// and the blocks one after another. So a result depends neither on the number of threads
// nor on how many rows and columns are computed together.
//
// The package starts no threads: its caller gives it a function that runs units of work.
// It knows nothing of tensors or layers.
package matmul
