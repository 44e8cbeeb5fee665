// Package cpu is the backend of the host: the operations of package backend over the
// kernels of one variant, on a fixed number of threads.
//
// A [Backend] cuts each operation into units — rows of a weight, heads of a sequence,
// rows of a batch — which the calling goroutine and Threads−1 workers take one by one.
// A unit computes its elements from operands alone, so neither the number of threads nor
// the choice of thread changes a bit of the result. Weights are used in place, in their stored
// dtype and at any byte address; each is read once per call, whatever the number of tokens.
//
// Large batches are packed once per call, and weights are widened or packed piece by piece, so
// that both stay in the caches. Small batches multiply the weights in place. Where LinearRounded
// rounds, it uses AMX tiles in both roles, so that one token and a batch have one order of sums;
// otherwise generated tokens are dot products, in any number. Linear uses dot products too, except
// for interleaved weights, which it sums like prompts. FP8 and MXFP4 weights that are multiplied
// without unpacking have an order of their own in both.
//
// Independent products are one operation: each thread has a run of rows of each weight, and
// tokens that several weights need in the same packing are packed once.
//
// An operation is done when its call returns. A fault on mapped memory and a shape that
// does not fit become the sticky error which Sync returns. Operations allocate nothing
// once their scratch has grown to the largest shape seen.
package cpu
