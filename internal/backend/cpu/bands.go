package cpu

import "github.com/heftai/heft/internal/kernels/quant"

// bandBytes is how much of the tokens passes a unit of bands at a time: what the first-level cache
// holds beside weights.
const bandBytes = 24 << 10

// bands is a Linear of weights in bands whose inputs stay as they are, for few tokens. Each
// element is one sum in ascending order of the columns, as in outer, which many tokens take.
type bands struct{ linear }

// sumsBands reports whether Linear sums the products of op so: where the weight is in bands along
// the inputs.
func sumsBands(op *linear) bool {
	return op.w.packed.Height > 0 && !op.w.transposed && op.w.cols > 0
}

// few reports whether the tokens are so few that weights are used where they lie.
func (op *bands) few() bool {
	return op.tokens <= op.set.QGEMM.BandTokens() && (op.w.col|op.w.cols)%quant.BlockColumns == 0
}

func (op *bands) prepare(threads int) needs {
	op.unitRows = bandRows(&op.linear, threads)
	return needs{units: ceil(op.w.rows, op.unitRows)}
}

func (op *bands) run(_ *worker, unit int) {
	m, r := &op.w, unit*op.unitRows
	rows := min(op.unitRows, m.rows-r)
	step := max(bandBytes/(4*op.tokens)/quant.BlockColumns, 1) * quant.BlockColumns
	for k := 0; k < m.cols; k += step {
		n := min(step, m.cols-k)
		op.set.QGEMM.MulBands(from(op.y, 0, r), &m.packed, m.row+r*m.step, m.step, m.col+k, rows, from(op.x, 0, k), op.tokens, n, k > 0)
	}
	op.addBias(0, op.tokens, r, rows)
}
