//go:build !purego

package vector

import (
	"github.com/heftai/heft/internal/kernels/asm"
)

//go:noinline
func (bf16) narrow(dst []uint32, src []float32) {
	if len(src)%2 != 0 {
		dst[len(dst)-1] = 0
	}
	avx512bf16Narrow(asm.Words(dst), asm.Floats(src), int64(len(src)))
}
