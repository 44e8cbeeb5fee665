//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The signatures of the generated functions in tables. Strides are in bytes.
type (
	spreadKernel func(dst unsafe.Pointer, step int64, src unsafe.Pointer, n int64)
	groupsKernel func(w, x, next, sums, y unsafe.Pointer, ys, n, rows, tokens, flags int64)
)

// simd is a variant implemented in assembly.
type simd struct {
	spreads  [mat.Formats]spreadKernel
	multiply groupsKernel
	wide     bool // AVX-512
}

var avx512 = simd{
	spreads:  [mat.Formats]spreadKernel{mat.BFloat16: avx512SpreadBF16, mat.Float16: avx512SpreadF16, mat.Float32: avx512SpreadF32},
	multiply: avx512Groups,
	wide:     true,
}

var avx2 = simd{
	spreads:  [mat.Formats]spreadKernel{mat.BFloat16: avx2SpreadBF16, mat.Float16: avx2SpreadF16, mat.Float32: avx2SpreadF32},
	multiply: avx2Groups,
}

func opsOf(v isa.Variant) ops {
	switch v.Level {
	case isa.AVX512:
		return &avx512
	case isa.AVX2:
		return &avx2
	}
	return goOps{}
}

func grouperOf(v isa.Variant) grouper {
	switch v.Level {
	case isa.AVX512:
		return &avx512
	case isa.AVX2:
		return &avx2
	}
	return nil
}

func smallBatcherOf(v isa.Variant) smallBatcher {
	if v.Level == isa.AVX512 {
		return &avx512
	}
	return nil
}

// bf16 is the AVX-512 BF16 variant, with the tiles of AMX if the processor has them.
type bf16 struct{ tiles bool }

func rounderOf(v isa.Variant) rounder {
	if v.BF16 {
		return bf16{tiles: v.AMX}
	}
	return nil
}
