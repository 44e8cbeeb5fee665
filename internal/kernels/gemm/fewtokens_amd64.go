//go:build !purego

package gemm

import "github.com/heftai/heft/internal/kernels/asm"

//go:noinline
func (bf16) transposePack(w []uint32, blocks int) {
	avx512bf16TransposePack(asm.Words(w), int64(blocks))
}

//go:noinline
func (bf16) tileFew(t FewTiles) {
	const part = 8 // tokens per call
	for i := 0; i < t.Tokens; i += part {
		avx512bf16TileFew(asm.Floats(t.Y.V[i*t.Y.Stride:]), int64(4*t.Y.Stride), asm.Words(t.W), int64(4*t.WStride), asm.Words(t.X[i:]), int64(t.Blocks), int64(t.Rows), int64(t.Tokens-i))
	}
}
