//go:build !purego

package gemm

import (
	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
)

//go:noinline
func (a *simd) spread(dst []float32, step int, src []byte, n int, f mat.Format) {
	a.spreads[f](asm.Floats(dst), int64(4*step), asm.Bytes(src), int64(n))
}

//go:noinline
func (a *simd) groups(y mat.Floats, w, x, next, sums []float32, rows, tokens, n int, first, last bool) {
	var flags int64
	if first {
		flags |= 1
	}
	if last {
		flags |= 2
	}
	a.multiply(asm.Floats(w), asm.Floats(x), asm.Floats(next), asm.Floats(sums), asm.Floats(y.V), int64(4*y.Stride), int64(n), int64(rows), int64(tokens), flags)
}
