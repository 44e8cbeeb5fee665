//go:build linux

package qgemm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestCodesStayInside is TestStaysInside for products with codes: codes, scales, tokens, scratch and
// results end where memory ends.
func TestCodesStayInside(t *testing.T) {
	codesCases(t, func(t *testing.T, _ string, set *kernels.Set, p *quant.Packed, row, step, rows, n int) {
		if n > 1100 {
			return
		}
		p.Codes = append(kerneltest.Guarded(t, len(p.Codes))[:0], p.Codes...)
		p.Scales = append(kerneltest.Guarded(t, len(p.Scales))[:0], p.Scales...)
		r := rand.New(rand.NewPCG(5, 9))
		for tokens := 1; tokens <= set.QGEMM.MinifloatGroup(8); tokens *= 2 {
			x := kerneltest.GuardedFloats(t, tokens*n)
			copy(x, kerneltest.Random(r, len(x)))
			packed := kerneltest.GuardedFloats(t, tokens*set.QGEMM.MinifloatFloats(p, n))
			set.QGEMM.PackMinifloat(packed, p, mat.Floats{V: x, Stride: n}, tokens, n)
			set.QGEMM.MulMinifloat(mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}, quant.View{Packed: p, Row: row, Step: step, Rows: rows, Cols: n}, packed, kerneltest.GuardedFloats(t, set.QGEMM.MinifloatScratch(p, rows, tokens, n)), tokens)
		}
	})
}
