// Package isa defines the variants of the kernels and detects which of them this processor
// supports.
//
// A [Variant] is a set of instructions that kernels may use: "go" is supported everywhere, and
// "avx2", "avx512", "avx512bf16" and "amx" depend on the processor. Every kernel family has an
// implementation for each variant. [Available] queries the processor and ignores the environment.
// With the build tag purego, and on architectures other than amd64, "go" is the only variant.
package isa

// Level is the set of vector instructions that a variant uses.
type Level uint8

// The levels. Each includes those before it.
const (
	Go     Level = iota // no assembly
	AVX2                // AVX2, FMA and F16C: vectors of 8 float32
	AVX512              // AVX-512 F, BW, DQ, VL and BMI2: vectors of 16 float32
)

// Variant is one set of instructions that kernels may use.
type Variant struct {
	// Name is go, avx2, avx512, avx512bf16 or amx.
	Name  string
	Level Level
	// Lanes is the number of partial sums of a dot product in float32.
	Lanes int
	// VNNI reports whether products of 8-bit integers may use AVX-512 VNNI.
	VNNI bool
	// BF16 reports whether there are products of activations rounded to bfloat16 (AVX-512 BF16).
	BF16 bool
	// Bytes reports whether, besides BF16, bytes may be looked up in tables of 128 entries
	// (AVX-512 VBMI). It does not change results.
	Bytes bool
	// AMX reports whether products of activations rounded to bfloat16 use tiles.
	AMX bool
	// SlowPairs reports whether products of bfloat16 pairs are slower than those of float32,
	// because this processor multiplies half as many at a time.
	SlowPairs bool
}

// Portable returns the variant without assembly.
func Portable() Variant { return Variant{Name: "go", Lanes: 8} }
