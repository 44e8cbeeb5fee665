//go:build !purego

package qgemm

import (
	"sync"
	"unsafe"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/vector"
)

//go:noinline
func (bf16) packBands(p quant.Packing, dst []uint32, band []byte, next, blocks int) {
	var room [576 + 64]byte
	own := asm.Bytes(room[-uintptr(unsafe.Pointer(&room))&63:])
	if p == quant.Q8 {
		bf16PackBandsQ8(asm.Words(dst), asm.Bytes(band), int64(next), int64(blocks), own)
	} else {
		bf16PackBandsQ4(asm.Words(dst), asm.Bytes(band), int64(next), int64(blocks), own)
	}
}

//go:noinline
func (bf16) packE4M3(dst []uint32, codes []byte, stride int, scales *[gemm.PackRows * packBlocks]float32, rows, blocks int) {
	bf16PackE4M3(asm.Words(dst), asm.Bytes(codes), int64(stride), unsafe.Pointer(scales), int64(rows), int64(blocks))
}

//go:noinline
func (vbmi) packBytes(dst []uint32, codes []byte, stride int, values *[128]float32, scale float32, rows, blocks int) {
	bf16PackBytes(asm.Words(dst), asm.Bytes(codes), int64(stride), unsafe.Pointer(values), unsafe.Pointer(&scale), int64(rows), int64(blocks))
}

//go:noinline
func (bf16) packMXFP4(dst []uint32, codes []byte, stride int, scales []byte, apart, rows, blocks int) {
	bf16PackMXFP4(asm.Words(dst), asm.Bytes(codes), int64(stride), asm.Bytes(scales), int64(apart), int64(rows), int64(blocks), asm.Words(mxfp4Values()))
}

//go:noinline
func (bf16) packInt8(dst []uint32, codes []byte, stride int, by *packBuffers, each int, p quant.Packing, rows, blocks int) {
	factor := p.Factor()
	bf16PackInt8(asm.Words(dst), asm.Bytes(codes), int64(stride), unsafe.Pointer(&by.scales), unsafe.Pointer(&by.zeros), packBlocks, int64(each), unsafe.Pointer(&factor), int64(p.Flip()), int64(rows), int64(blocks))
}

//go:noinline
func (bf16) packNVFP4(dst []uint32, codes []byte, stride int, scales []byte, apart int, global [2]float32, rows, blocks int) {
	var room [2 * nvfp4Blocks]float32
	bf16PackNVFP4(asm.Words(dst), asm.Bytes(codes), int64(stride), asm.Bytes(scales), int64(apart), unsafe.Pointer(&global), int64(rows), int64(blocks), unsafe.Pointer(&room))
}

//go:noinline
func (bf16) packNibbles(p quant.Packing, dst []uint32, words []byte, stride int, scale, zero *[gemm.PackRows]float32, blocks int) {
	var room [1280 + 64]byte
	own := asm.Bytes(room[-uintptr(unsafe.Pointer(&room))&63:])
	if p == quant.Int4Rows {
		bf16PackNibbleRows(asm.Words(dst), asm.Bytes(words), int64(stride), unsafe.Pointer(scale), unsafe.Pointer(zero), int64(blocks), own)
	} else {
		bf16PackNibbleColumns(asm.Words(dst), asm.Bytes(words), int64(stride), unsafe.Pointer(scale), unsafe.Pointer(zero), int64(blocks), own)
	}
}

// mxfp4Values has for each scale of MXFP4 the values of all codes, rounded to bfloat16.
var mxfp4Values = sync.OnceValue(func() []uint32 {
	const codes = 16
	values, out := make([]float32, 256*codes), make([]uint32, 256*codes/2)
	for i := range values {
		values[i] = quant.FromE2M1(byte(i%codes)) * floats.FromE8M0(byte(i/codes))
	}
	narrow := vector.For(isa.Variant{Level: isa.AVX512, BF16: true})
	narrow.RoundPairs(out, values)
	return out
})
