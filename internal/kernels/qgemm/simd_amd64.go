//go:build !purego

package qgemm

import (
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/vector"
)

// simd is a variant implemented in assembly.
type simd struct{ wide bool } // wide: AVX-512

func summerOf(v isa.Variant) summer {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}

func minifloatOf(v isa.Variant) minifloatKernels {
	switch v.Level {
	case isa.AVX512:
		return &minifloatAVX512{gemv: gemv.For(v), vector: vector.For(v)}
	case isa.AVX2:
		return &minifloatAVX2{gemv: gemv.For(v)}
	}
	return nil
}

func integersOf(v isa.Variant) integers {
	switch {
	case v.VNNI:
		return vnni{}
	case v.Level != isa.Go:
		return maddubs{}
	}
	return nil
}

// bf16 is the AVX-512 BF16 variant.
type bf16 struct{}

// vbmi is the variant with AVX-512 BF16 and VBMI.
type vbmi struct{ bf16 }

func packerOf(v isa.Variant) packer {
	switch {
	case v.BF16 && v.Bytes:
		return vbmi{}
	case v.BF16:
		return bf16{}
	}
	return nil
}
