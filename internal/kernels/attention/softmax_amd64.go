//go:build !purego

package attention

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The functions below are not inlined: see package asm.

//go:noinline
func (bf16) softmax(p []uint32, c mat.Floats, keys, base int, by float32, o *Online, whole bool) {
	var all int64
	if whole {
		all = 1
	}
	bf16Softmax(asm.Floats(c.V), int64(4*c.Stride), asm.Words(p), unsafe.Pointer(o), int64(keys), int64(base), asm.Bits(by), all)
}

//go:noinline
func (bf16) scaleLanes(x mat.Floats, rows int, by *[gemm.PanelTokens]float32) {
	bf16ScaleLanes(asm.Floats(x.V), int64(4*x.Stride), int64(rows), unsafe.Pointer(by))
}

//go:noinline
func (bf16) packTurned(dst []uint32, apart int, w, next mat.Weights, cols int) bool {
	var bad uint32
	bf16PackTransposed(asm.Words(dst), int64(4*apart), asm.Bytes(w.Data), int64(w.Stride), asm.Bytes(next.Data), int64(next.Stride), int64(cols), unsafe.Pointer(&bad))
	return bad == 0
}
