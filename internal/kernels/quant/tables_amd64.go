//go:build !purego

package quant

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (a *simd) lookUp(p *Packed, dst []float32, codes []byte, scales, zeros []float32, columns int) {
	t := &tables[p.Packing]
	kernel := avx2TableLow
	switch {
	case t.high && p.Round == mat.BFloat16:
		kernel = avx2TableHighBF16
	case t.high && p.Round == mat.Float16:
		kernel = avx2TableHighF16
	case t.high:
		kernel = avx2TableHigh
	}
	kernel(asm.Floats(dst), asm.Bytes(codes), asm.Floats(t.values[:]), asm.Floats(scales), asm.Floats(zeros), int64(len(scales)), int64(columns))
}

//go:noinline
func (a *simd) bytes(dst []float32, codes []byte, by byteScale) {
	n := len(dst) &^ 7
	if n > 0 {
		avx2UnpackInt8(asm.Floats(dst), asm.Bytes(codes), int64(n), unsafe.Pointer(&by))
	}
	goOps{}.bytes(dst[n:], codes[n:len(dst)], by)
}
