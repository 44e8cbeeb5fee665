// Package cpu is the backend of the host: the operations of package backend over the
// kernels of one variant, on a fixed number of threads.
//
// A [Backend] cuts each operation into units — rows of a weight, heads of a sequence,
// rows of a batch — which the calling goroutine and Threads−1 workers take one by one.
// A unit computes its elements from operands alone, so neither the number of threads nor
// who takes a unit changes a bit of the result. Weights are used where they lie, in
// their stored dtype and at any byte address; each is read once for a call, whatever the
// number of tokens.
//
// Many tokens are packed once for a call, and weights widened or packed piece by piece for a
// unit, so that both stay in the caches. Few tokens meet the weights where they lie. Where
// LinearRounded rounds, that is in tiles with AMX, whatever the role, so that one token and a
// batch have one order of sums; else generated tokens, few or many, are dot products. Linear is
// dot products too, but for weights in bands, which it sums like prompts. FP8 and MXFP4 weights
// that meet tokens as they are have an order of their own in both.
//
// Products that do not wait for one another are one operation: each thread has a run of rows of
// each weight, and tokens that several weights want packed in the same way are packed once.
//
// An operation is done when its call returns. A fault on mapped memory and a shape that
// does not fit become the sticky error which Sync returns. Operations allocate nothing
// once their scratch has grown to the largest shape seen.
package cpu
