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
func (a *simd) groups(p GroupProduct) {
	flags := asm.Flag(p.First) | 2*asm.Flag(p.Last)
	a.multiply(asm.Floats(p.W), asm.Floats(p.X), asm.Floats(p.Next), asm.Floats(p.Sums), asm.Floats(p.Y.V), int64(4*p.Y.Stride), int64(p.N), int64(p.Rows), int64(p.Tokens), flags)
}
