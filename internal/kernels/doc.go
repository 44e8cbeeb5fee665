// Package kernels is the innermost arithmetic on the host: short loops over raw
// memory, in Go and in generated assembly.
//
// A [Set] is one variant of all kernels: "go" runs everywhere, "avx2", "avx512",
// "avx512bf16" and "amx" where the processor has them. [Select] takes one by name, or the
// best one; nothing here reads the environment. [Floats] are activations, [Weights] are a matrix as it
// lies in a checkpoint: bfloat16, float16 or float32 at any byte address.
//
// # Order of summation
//
// Within one Set every sum has one order, which depends on its length alone. A dot
// product of length n has [Set.Lanes] partial sums; lane l adds the products k ≡ l
// (mod lanes) in ascending k; then the lanes are added in halves: lane i and lane
// i+lanes/2, and so on down to one. [Set.Mix] adds in ascending order of the keys. So
// a result does not depend on how many rows or tokens share a call, nor on where the
// bytes lie. [Set.AddLanes] gives the bits of [Set.Mul] for a transposed matrix, and
// [Set.MulGroups] for packed operands, which is fastest for many tokens. The assembly uses
// fused multiply-add, the Go variant does not: variants differ from each other in the last
// bits, never inside themselves.
//
// [Set.MulHalves] is a dot product too, for few tokens and bfloat16 weights: its lane l adds the
// products 2l and 2l+1 (mod twice the lanes), since both weights of a word are widened at once.
//
// [Set.SumPanels] has another order, which is faster for many tokens: one sum for each element,
// in ascending k. It wants tokens and rows of weights packed in panels, each k of which is a
// vector.
// [Set.SumFew] has the same order, for few tokens and bfloat16 weights as they lie.
//
// The last two variants have the kernels of avx512 and others that multiply bfloat16
// weights by activations rounded to bfloat16 ([Set.Rounds]). [Set.MulPairs] is a dot product
// for few tokens and reads weights where they lie; [Set.Tile] is for many tokens and wants
// both operands packed. Each has one order of summation, which again depends on the length
// alone, but the two differ. With the tiles of AMX [Set.TileRows] reads weights where they
// lie as well, in the order of Tile.
//
// Weights of Q8 and Q4 in bands ([Set.Bands]) are multiplied as integers by activations
// rounded to eight bits ([Set.MulInts]), in one order for any number of tokens, which is the
// same in all variants that can, or by floats as they are ([Set.MulBands]), in the order of
// SumPanels.
//
// Weights of E4M3 and MXFP4 codes are multiplied where they lie by groups of tokens laid out for
// that ([Set.MulCodes]), scales apart, in one order for any number of tokens.
//
// # Assembly
//
// _asm holds C with intrinsics and the generator which turns it into Go assembly with a
// pinned clang. No kernel uses the stack, so that a fault on a mapped weight inside one
// is an ordinary Go panic where debug.SetPanicOnFault is set. A kernel call takes well
// under 100 µs when its caller hands it pieces of at most 256 KiB of weights, and every
// call goes through a Go function that the scheduler can interrupt. The tag purego
// leaves the assembly out.
//
// The package knows nothing of tensors, models or threads.
package kernels

//go:generate go -C _asm run . -out ..
