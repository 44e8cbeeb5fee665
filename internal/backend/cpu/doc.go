// Package cpu implements package backend's operations on the host, with the kernels of one
// variant and a fixed number of threads.
//
// A [Backend] divides each operation into units: rows of a weight, heads of a sequence, rows of a
// batch. The calling goroutine and Threads−1 workers take units one by one. A unit computes its
// elements from operands only, so neither the number of threads nor the assignment of units
// changes a bit of the result. Weights are used in place, in their stored dtype and at any byte
// address. Each weight is read once per call, whatever the number of tokens.
//
// Large batches are packed once per call, and weights are widened or packed piece by piece, so
// that both stay in the caches. Small batches multiply the weights in place. Where LinearRounded
// rounds and the processor has AMX, it uses tiles for prompts and for generated tokens, so that
// one token and a batch have the same order of sums. Otherwise generated tokens are dot products,
// whatever their number. Linear uses dot products too, except for interleaved weights, which it
// sums as it does for prompts. FP8 and MXFP4 weights that are multiplied without dequantising
// have an order of their own in both.
//
// Independent products can be one operation: each thread gets a run of rows of each weight, and
// tokens that several weights need in the same packing are packed once.
//
// An operation is complete when its call returns. A fault on mapped memory, or an operand with a
// wrong shape, becomes the sticky error that Sync returns. Operations do not allocate once their
// scratch memory has grown to the largest shape.
package cpu
