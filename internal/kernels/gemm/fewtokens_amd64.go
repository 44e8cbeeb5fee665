//go:build !purego

package gemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (bf16) transposePack(w []uint32, blocks int) {
	avx512bf16TransposePack(asm.Words(w), int64(blocks))
}

//go:noinline
func (bf16) transposeRows(dst []uint32, w mat.Weights, blocks int) {
	avx512bf16TransposeRows(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(blocks))
}

//go:noinline
func (bf16) tileFew(t FewTiles) {
	const part = 8 // tokens per call
	w, pack := asm.Words(t.W), 4*t.Blocks*BlockK/2*PackRows
	for i := 0; i < t.Tokens; i += part {
		// The packs are in a cache, so that their prefetch does nothing.
		next, after := w, int64(0)
		switch {
		case i/part*pack >= len(t.Next):
		case t.Tokens <= part:
			next, after = asm.Bytes(t.Next), int64(pack)
		default:
			next = asm.Bytes(t.Next[i/part*pack:])
			after = int64(uintptr(unsafe.Pointer(w)) - uintptr(next))
		}
		avx512bf16TileFew(asm.Floats(t.Y.V[i*t.Y.Stride:]), int64(4*t.Y.Stride), w, int64(4*t.WStride), asm.Words(t.X[i:]), int64(t.Blocks), int64(t.Rows), int64(t.Tokens-i), next, after)
	}
}
