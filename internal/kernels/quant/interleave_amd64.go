//go:build !purego

package quant

import (
	"github.com/heftai/heft/internal/kernels/asm"
)

// The functions below are not inlined: see package asm.

//go:noinline
func (a *simd) bands(p Packing, dst, rows []byte, stride, count, blocks int) {
	to, from, codes, flip := asm.Bytes(dst), asm.Bytes(rows), int64(p.BlockBytes()-2), int64(p.Offset())
	switch {
	case a.wide && count == InterleavedRows && p == Q8:
		avx512BandsQ8(to, from, int64(stride), int64(blocks))
	case a.wide && count == InterleavedRows:
		avx512BandsQ4(to, from, int64(stride), int64(blocks))
	case count == InterleavedRows && p == Q8:
		avx2BandsQ8(to, from, int64(stride), int64(blocks))
	case count == InterleavedRows:
		avx2BandsQ4(to, from, int64(stride), int64(blocks))
	case a.wide:
		avx512LastBand(to, from, int64(stride), int64(count), codes, int64(blocks), flip)
	default:
		avx2LastBand(to, from, int64(stride), int64(count), codes, int64(blocks), flip)
	}
}

//go:noinline
func (a *simd) unband(p Packing, dst []float32, band []byte, rows, lane int) {
	to, scales, codes := asm.Floats(dst), asm.Bytes(band[2*lane:]), asm.Bytes(band[2*rows+4*lane:])
	step, each, n := int64(4*rows), int64(rows*p.BlockBytes()), int64(len(dst)/BlockColumns)
	switch {
	case a.wide && p == Q8:
		avx512UnbandQ8(to, scales, codes, step, each, n)
	case a.wide:
		avx512UnbandQ4(to, scales, codes, step, each, n)
	case p == Q8:
		avx2UnbandQ8(to, scales, codes, step, each, n)
	default:
		avx2UnbandQ4(to, scales, codes, step, each, n)
	}
}
