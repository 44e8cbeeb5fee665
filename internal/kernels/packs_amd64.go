//go:build !purego

package kernels

import (
	"sync"
	"unsafe"
)

//go:noinline
func (bf16) packBands(p Packing, dst []uint32, band []byte, blocks int) {
	var room [576 + 64]byte
	own := bytePtr(room[-uintptr(unsafe.Pointer(&room))&63:])
	if p == Q8 {
		bf16PackBandsQ8(wordPtr(dst), bytePtr(band), int64(blocks), own)
	} else {
		bf16PackBandsQ4(wordPtr(dst), bytePtr(band), int64(blocks), own)
	}
}

//go:noinline
func (bf16) packE4M3(dst []uint32, codes []byte, stride int, scales *[PackRows * packBlocks]float32, rows, blocks int) {
	bf16PackE4M3(wordPtr(dst), bytePtr(codes), int64(stride), unsafe.Pointer(scales), int64(rows), int64(blocks))
}

//go:noinline
func (bf16) packMXFP4(dst []uint32, codes []byte, stride int, scales []byte, apart, rows, blocks int) {
	bf16PackMXFP4(wordPtr(dst), bytePtr(codes), int64(stride), bytePtr(scales), int64(apart), int64(rows), int64(blocks), wordPtr(mxfp4Values()))
}

//go:noinline
func (bf16) packNibbles(p Packing, dst []uint32, words []byte, stride int, scale, zero *[PackRows]float32, blocks int) {
	var room [1280 + 64]byte
	own := bytePtr(room[-uintptr(unsafe.Pointer(&room))&63:])
	if p == NibbleRows {
		bf16PackNibbleRows(wordPtr(dst), bytePtr(words), int64(stride), unsafe.Pointer(scale), unsafe.Pointer(zero), int64(blocks), own)
	} else {
		bf16PackNibbleColumns(wordPtr(dst), bytePtr(words), int64(stride), unsafe.Pointer(scale), unsafe.Pointer(zero), int64(blocks), own)
	}
}

// mxfp4Values has for each scale of MXFP4 the values of all codes, rounded to bfloat16.
var mxfp4Values = sync.OnceValue(func() []uint32 {
	const codes = 16
	values, out := make([]float32, 256*codes), make([]uint32, 256*codes/2)
	for i := range values {
		values[i] = FromE2M1(byte(i%codes)) * FromE8M0(byte(i/codes))
	}
	bf16{}.narrow(out, values)
	return out
})
