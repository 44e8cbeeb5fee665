//go:build !purego

package gemm

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (bf16) tileSteps(t *StepTiles) {
	next, stride := asm.Words(t.W), int64(0) // already in the cache, where prefetching costs nothing
	if len(t.Next.Data) > 0 {
		next, stride = asm.Bytes(t.Next.Data), int64(t.Next.Stride)
	}
	if t.Packs == 2 {
		amxSteps2(asm.Words(t.W), asm.Words(t.X), asm.Floats(t.C), int64(t.Blocks), int64(t.Panels), asm.Flag(t.Add), next, stride)
		return
	}
	rows := mat.CeilDiv(t.Packs*PackRows, t.Panels)
	amxSteps4(asm.Words(t.W), asm.Words(t.X), asm.Floats(t.C), int64(t.Blocks), int64(t.Panels), asm.Flag(t.Add), next, stride, int64(rows))
}

//go:noinline
func (bf16) packPiece(dst []uint32, w mat.Weights, rows, n, packs int) {
	avx512bf16PackPiece(asm.Words(dst), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(n), int64(packs))
}

//go:noinline
func (bf16) storeSteps(t *StepSums) {
	piece := t.Packs * PackRows * PanelTokens
	avx512bf16StoreSteps(asm.Floats(t.Y.V), int64(4*t.Y.Stride), asm.Floats(t.C), int64(4*(t.Stride-piece)), int64(t.Packs), asm.Floats(t.Bias), int64(t.Rows), int64(t.Tokens), asm.Flag(t.Past))
}
