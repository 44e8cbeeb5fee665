//go:build !purego

package attention

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (bf16) narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int) {
	bf16NarrowRowsQ8(asm.Bytes(dst), int64(apart), asm.Bytes(w), int64(stride), int64(rows), int64(blocks))
}

//go:noinline
func (a *simd) unpackRows(dst mat.Floats, w []byte, stride, rows, blocks int) {
	if a.wide {
		avx512UnpackRowsQ8(asm.Floats(dst.V), int64(4*dst.Stride), asm.Bytes(w), int64(stride), int64(rows), int64(blocks))
	} else {
		avx2UnpackRowsQ8(asm.Floats(dst.V), int64(4*dst.Stride), asm.Bytes(w), int64(stride), int64(rows), int64(blocks))
	}
}
