package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// fewProducts is the number of multiplications below which packing operands is not worthwhile.
const fewProducts = 1 << 12

// Product packs its operands if that is worthwhile. Otherwise it computes products as for a
// prompt's rows.
func (b *Backend) Product(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, round bool) {
	op, ok := b.linearOf(dst, x, w, bias)
	if !ok {
		return
	}
	if op.w.isCoded() {
		b.fail("linear: a weight stored as %v cannot be trained", w.Quant.Format)
		return
	}
	m := trainingMode(w.DType, round)
	c := choice{set: b.set, w: &op.w, tokens: op.tokens, mode: m, role: trainingRole}
	if c.kernel() != packedMatrices {
		b.single(backend.Product{Dst: dst, X: x, W: w, Bias: bias, Rounded: m == rounded, Role: backend.Prompt})
		return
	}
	b.multiply(matmul.Product{C: op.y, A: matmul.Rows(op.x.V, op.x.Stride), B: packable(op.w.Weights, !op.w.transposed), Rows: op.tokens, Cols: op.w.rows, N: op.w.cols, Rounded: m == rounded})
	if op.bias != nil {
		b.each(op.tokens, op.w.rows, func(_ *worker, r int) { b.set.Vector.AddScaled(row(op.y, r, op.w.rows), op.bias, 1) })
	}
}

// trainingMode returns the mode of a weight's training products. If asked, products of bfloat16
// and float32 weights are rounded to bfloat16. That does not change bfloat16 weights, and leaves
// float32 weights as exact as the other operand.
func trainingMode(d meta.DType, asked bool) mode {
	if asked && (d == meta.BFloat16 || d == meta.Float32) {
		return rounded
	}
	return exact
}

// packable returns a weight in its stored layout. It does not copy floats.
func packable(w mat.Weights, turned bool) matmul.Matrix {
	if w.Format == mat.Float32 && address(w.Data)%4 == 0 && w.Stride%4 == 0 {
		return matmul.Matrix{V: tensor.Tensor{Data: w.Data}.F32(), Stride: w.Stride / 4, Turned: turned}
	}
	return matmul.Matrix{Stored: w, Turned: turned}
}

// multiply runs a training product.
func (b *Backend) multiply(p matmul.Product) {
	b.pool.workers[0].record(packedMatrices + kernel(b.gemm.Kernel(p.Rounded, p.N)))
	b.gemm.Mul(p)
}

// LinearGrad packs its operands if that is worthwhile.
func (b *Backend) LinearGrad(dx tensor.Tensor, dw backend.Matrix, dbias, dy, x tensor.Tensor, w backend.Matrix, round bool) {
	if b.failed.Load() || dy.Rows() == 0 {
		return
	}
	m := trainingMode(w.DType, round)
	grad, ok := b.floats("linear gradient", "result", dy, dy.Rows(), dy.Cols())
	if !ok {
		return
	}
	if !dx.IsZero() {
		b.inputGrad(dx, grad, w, m)
	}
	if !dw.IsZero() {
		b.weightGrad(dw, dy, x, m)
	}
	v, stride, ok := b.gradient("linear gradient", "bias", dbias, dy.Cols())
	if ok && v != nil {
		b.sumRows(v, stride, grad, dy.Rows(), dy.Cols())
	}
}

// panelRows is the number of rows widened at a time if a weight cannot be packed.
const panelRows = 256

// inputGrad computes dx += dy·W.
func (b *Backend) inputGrad(dx tensor.Tensor, dy mat.Floats, w backend.Matrix, mode mode) {
	m, ok := b.weight("linear gradient", w)
	if !ok {
		return
	}
	tokens := dx.Rows()
	out, ok := b.floats("linear gradient", "input", dx, tokens, m.cols)
	if !ok {
		return
	}
	if c := (choice{set: b.set, w: &m, tokens: tokens, mode: mode, role: gradientRole}); c.kernel() == packedMatrices {
		b.multiply(matmul.Product{C: out, A: matmul.Rows(dy.V, dy.Stride), B: packable(m.Weights, m.transposed), Rows: tokens, Cols: m.cols, N: m.rows, Add: true, Rounded: mode == rounded})
		return
	}
	op := linear{set: b.set, w: m, access: widened}
	scratch := m.unpackScratch()
	if m.transposed {
		op.access = turned
		scratch += panelRows * (m.cols + panelPad + turnLines*m.step)
	} else {
		scratch += panelRows * m.cols
	}
	if !b.reserve(scratch) {
		return
	}
	for r := 0; r < m.rows; r += panelRows {
		n := min(panelRows, m.rows-r)
		var panel mat.Weights
		b.run(taskFunc(func(wk *worker, _ int) { panel = op.panel(wk.scratch.v, r, n) }), 1, 0)
		b.multiply(matmul.Product{C: out, A: matmul.Rows(dy.V[r:], dy.Stride), B: packable(panel, false), Rows: tokens, Cols: m.cols, N: n, Add: true, Rounded: mode == rounded})
	}
}

// weightGrad computes dw += dyᵀ·x in the layout of dw.
func (b *Backend) weightGrad(dw backend.Matrix, dy, x tensor.Tensor, mode mode) {
	n := dy.Rows()
	grad, ok1 := b.floats("linear gradient", "result", dy, n, dw.OutRows())
	in, ok2 := b.floats("linear gradient", "input", x, n, dw.InCols())
	into, ok3 := b.floats("linear gradient", "weight", dw.Tensor, dw.Dims[0], dw.Dims[1])
	if !ok1 || !ok2 || !ok3 {
		return
	}
	rows, cols := dw.OutRows(), dw.InCols()
	outer := func(dst, l, r mat.Floats, rows, cols int, add bool) {
		b.multiply(matmul.Product{C: dst, A: matmul.Columns(l.V, l.Stride), B: matmul.Rows(r.V, r.Stride), Rows: rows, Cols: cols, N: n, Add: add, Rounded: mode == rounded})
	}
	switch step := max(dw.RowStep, 1); {
	case !dw.Transposed:
		into.Stride *= step
		outer(into, grad, in, rows, cols, true)
	case step == 1:
		outer(into, in, grad, cols, rows, true)
	default:
		part := mat.Floats{V: make([]float32, rows*cols), Stride: rows}
		outer(part, in, grad, cols, rows, false)
		b.each(cols, rows, func(_ *worker, r int) {
			to := into.V[r*into.Stride:]
			for i, v := range row(part, r, rows) {
				to[i*step] += v
			}
		})
	}
}

// sumRows computes v[c·stride] += Σ_r x[r][c], in order of r.
func (b *Backend) sumRows(v []float32, stride int, x mat.Floats, rows, cols int) {
	b.columns(cols, rows, func(sum []float32, r, c int) {
		b.set.Vector.AddScaled(sum, from(x, r, c).V, 1)
	}, func(sum []float32, c int) {
		for i, s := range sum {
			v[(c+i)*stride] += s
		}
	})
}

// columns calls add for all rows in order, for the sums of columns from c on.
func (b *Backend) columns(cols, rows int, add func(sum []float32, r, c int), done func(sum []float32, c int)) {
	const width = 128
	b.run(taskFunc(func(_ *worker, unit int) {
		var buf [width]float32
		c := unit * width
		sum := buf[:min(width, cols-c)]
		for r := range rows {
			add(sum, r, c)
		}
		done(sum, c)
	}), ceil(cols, width), rows*cols)
}
