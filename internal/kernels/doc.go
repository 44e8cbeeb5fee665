// Package kernels selects the innermost arithmetic on the host: short loops over raw memory, in Go and in
// generated assembly.
//
// A [Set] is one variant of all kernels; [Select] takes one by name, or the best that the processor runs.
// The kernels are in packages by family:
//
//   - vector: elementwise loops, reductions, conversions, transposition
//   - gemv: weights as they are stored with few tokens
//   - gemm: packed matrices, in float32 and in bfloat16 (AVX-512 BF16, AMX)
//   - quant: formats of quantised weights, unpacking and quantising
//   - qgemm: products with quantised weights
//   - attention: the paged KV cache and softmax
//   - grad, optimizer: training
//   - sampling: logits to a token
//   - roof: what a processor can do at most
//
// Package mat has their operands, package isa the variants.
//
// Within one variant every sum has one order, which the families document. It depends on the length
// of the sum alone, not on the rows and tokens of a call or on the alignment of bytes.
//
// # Assembly
//
// _asm holds C with intrinsics, grouped by family, and the generator, which compiles it to Go
// assembly with a pinned clang. No kernel uses the stack, so that a fault on a mapped weight inside
// one is an ordinary Go panic where debug.SetPanicOnFault is set. A kernel call takes well under
// 100 µs when its caller hands it pieces of at most 256 KiB of weights, and every call goes through
// a Go function that the scheduler can interrupt. The tag purego leaves the assembly out.
//
// The kernels know nothing of tensors, models or threads.
package kernels

//go:generate go -C _asm run . -out ..
