// Package kernels selects the innermost arithmetic on the host: short loops over raw memory, in
// Go and in generated assembly.
//
// A [Set] holds all kernels of one variant. [Select] returns a variant by name, or the best one
// that the processor supports. Each family of kernels has a package:
//
//   - vector: elementwise loops, reductions, conversions, transposition
//   - gemv: stored weights by few tokens
//   - gemm: packed matrices, in float32 and in bfloat16 (AVX-512 BF16, AMX)
//   - quant: formats of quantised weights, dequantising and quantising
//   - qgemm: products with quantised weights
//   - coded: bfloat16 weights in compressed form
//   - attention: scores and weighted sums over the paged KV cache, and softmax
//   - grad, optimizer: training
//   - sampling: choosing a token from logits
//   - roof: the highest rates that a processor reaches
//
// Package mat defines the operands and package isa the variants.
//
// Within one variant every sum has one order, which each family documents. The order depends only
// on the length of the sum, not on the rows and tokens of a call or on the alignment of its
// operands.
//
// # Assembly
//
// Directory _asm holds C with intrinsics, grouped by family, and the generator, which compiles it
// to Go assembly with a pinned clang. No kernel uses the stack. A fault on a mapped weight inside
// a kernel is therefore an ordinary Go panic if debug.SetPanicOnFault is set. A kernel call takes
// well under 100 µs if its caller passes at most 256 KiB of weights at a time. Every call goes
// through a Go function, at which the scheduler can preempt the goroutine. The build tag purego
// leaves the assembly out.
//
// The kernels know nothing of tensors, models or threads.
package kernels

//go:generate go -C _asm run . -out ..
