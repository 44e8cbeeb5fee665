// Package isa knows the variants of the kernels and which of them this processor runs.
//
// A [Variant] is a set of instructions that the kernels of one build may use: "go" runs everywhere,
// "avx2", "avx512", "avx512bf16" and "amx" where the processor has them. Every kernel family has one
// implementation for each variant. [Available] looks at the processor; nothing here reads the
// environment. The build tag purego, and processors other than amd64, leave only "go".
package isa

// Level is the vector instructions that a variant uses.
type Level uint8

// The levels, each of which includes those before it.
const (
	Go     Level = iota // no assembly
	AVX2                // AVX2, FMA and F16C: vectors of 8 float32
	AVX512              // AVX-512 F, BW, DQ, VL and BMI2: vectors of 16 float32
)

// Variant is one choice of instructions.
type Variant struct {
	// Name is go, avx2, avx512, avx512bf16 or amx.
	Name  string
	Level Level
	// Lanes is the number of partial sums of a dot product in float32.
	Lanes int
	// VNNI says that products of 8-bit integers may use AVX-512 VNNI.
	VNNI bool
	// BF16 says that there are products of activations rounded to bfloat16 (AVX-512 BF16).
	BF16 bool
	// Bytes says that, beside BF16, bytes may be looked up in tables of 128 (AVX-512 VBMI). It changes no bit.
	Bytes bool
	// AMX says that those are computed in tiles.
	AMX bool
	// SlowPairs says that products of pairs of bfloat16 are slower than those of float32: this
	// processor multiplies half as many of them at a time.
	SlowPairs bool
}

// Portable is the variant without assembly.
func Portable() Variant { return Variant{Name: "go", Lanes: 8} }
