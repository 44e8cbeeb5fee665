//go:build !purego

package attention

import "github.com/heftai/heft/internal/kernels/isa"

// simd is a variant implemented in assembly.
type simd struct{ wide bool } // wide: AVX-512

func opsOf(v isa.Variant) unpacker {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}

func pagerOf(v isa.Variant) pager {
	switch v.Level {
	case isa.AVX512:
		return wideLanes{}
	case isa.AVX2:
		return narrowLanes{}
	}
	return nil
}

// bf16 is the AVX-512 BF16 variant.
type bf16 struct{}

func rounderOf(v isa.Variant) rounder {
	if v.BF16 {
		return bf16{}
	}
	return nil
}
