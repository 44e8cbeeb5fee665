package gemm

import "github.com/heftai/heft/internal/kernels"

// MulRounded is Mul of operands rounded to bfloat16. Sums and results are float32.
func (m *Multiplier) MulRounded(c kernels.Floats, a, b Matrix, rows, cols, n int, add bool) {
	m.round = true
	m.each(c, a, b, rows, cols, n, add, blockSum, 1, m.block)
	m.round = false
}
