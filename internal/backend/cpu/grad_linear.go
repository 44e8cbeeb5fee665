package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
)

// Sizes of a unit of the products of training.
const (
	gradTokens = 384  // rows of the result
	gradCols   = 1024 // columns of the result
	tileCols   = 64   // columns of a packed panel, as wide as the kernel's tile
	tileKeys   = 128  // terms of a panel: 32 KiB, which a first-level cache holds
	// packFloats is the scratch of mixUnit.
	packFloats = tileKeys*tileCols + gradTokens*tileKeys
)

// Product is Linear, or LinearRounded of a prompt.
func (b *Backend) Product(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, rounded bool) {
	if rounded {
		b.LinearRounded(dst, x, w, bias, backend.Prompt)
		return
	}
	b.Linear(dst, x, w, bias)
}

// LinearGrad computes in float32 whatever may be rounded.
func (b *Backend) LinearGrad(dx tensor.Tensor, dw backend.Matrix, dbias, dy, x tensor.Tensor, w backend.Matrix, _ bool) {
	if b.failed.Load() || dy.Rows() == 0 {
		return
	}
	grad, ok := b.floats("linear gradient", "result", dy, dy.Rows(), dy.Cols())
	if !ok {
		return
	}
	if !dx.IsZero() {
		b.inputGrad(dx, grad, w)
	}
	if !dw.IsZero() {
		b.weightGrad(dw, dy, x)
	}
	v, stride, ok := b.gradient("linear gradient", "bias", dbias, dy.Cols())
	if ok && v != nil {
		b.sumRows(v, stride, grad, dy.Rows(), dy.Cols())
	}
}

// inputGrad is dx += dy·W. Weights that do not lie row by row as floats are unpacked a
// panel at a time.
func (b *Backend) inputGrad(dx tensor.Tensor, dy kernels.Floats, w backend.Matrix) {
	m, ok := b.weight("linear gradient", w)
	if !ok {
		return
	}
	tokens := dx.Rows()
	out, ok := b.floats("linear gradient", "input", dx, tokens, m.cols)
	if !ok {
		return
	}
	op := linear{set: b.set, w: m, access: inPlace}
	scratch := packFloats
	switch {
	case m.transposed:
		op.access = turned
		scratch += tileKeys*(m.cols+panelPad+turnLines*m.step) + m.unpackScratch()
	case m.isPacked():
		op.access = widened
		scratch += tileKeys*m.cols + m.unpackScratch()
	}
	if !b.reserve(scratch) {
		return
	}
	width := gradCols
	if op.access != inPlace {
		width = m.cols // a panel is made once
	}
	across, height := ceil(m.cols, width), gradHeight(tokens, len(b.pool.workers))
	b.run(taskFunc(func(wk *worker, unit int) {
		c, t := unit%across*width, unit/across*height
		n, cols := min(height, tokens-t), min(width, m.cols-c)
		pack, rest := wk.scratch.v[:packFloats], wk.scratch.v[packFloats:]
		if op.access == inPlace {
			v := op.at(0)
			v.Data = v.Data[c*v.Format.Size():]
			mixUnit(b.set, pack, from(out, t, c), from(dy, t, 0), 1, v, m.rows, n, cols)
			return
		}
		for r := 0; r < m.rows; r += tileKeys {
			keys := min(tileKeys, m.rows-r)
			mixUnit(b.set, pack, from(out, t, c), from(dy, t, r), 1, op.panel(rest, r, keys), keys, n, cols)
		}
	}), across*ceil(tokens, height), tokens*m.rows*m.cols)
}

// gradHeight is the rows of a unit: whole tiles of the kernel, some for each thread.
// An element's sum does not depend on it.
func gradHeight(tokens, threads int) int {
	height := min(gradTokens, ceil(tokens, threads)+5)
	return max(height-height%6, 6)
}

// weightGrad is dw += dyᵀ·x in the layout of dw.
func (b *Backend) weightGrad(dw backend.Matrix, dy, x tensor.Tensor) {
	n := dy.Rows()
	grad, ok1 := b.floats("linear gradient", "result", dy, n, dw.OutRows())
	in, ok2 := b.floats("linear gradient", "input", x, n, dw.InCols())
	into, ok3 := b.floats("linear gradient", "weight", dw.Tensor, dw.Dims[0], dw.Dims[1])
	if !ok1 || !ok2 || !ok3 {
		return
	}
	rows, cols := dw.OutRows(), dw.InCols()
	switch step := max(dw.RowStep, 1); {
	case !dw.Transposed:
		into.Stride *= step
		b.outer(into, grad, in, n, rows, cols)
	case step == 1:
		b.outer(into, in, grad, n, cols, rows)
	default:
		part := kernels.Floats{V: make([]float32, rows*cols), Stride: rows}
		b.outer(part, in, grad, n, cols, rows)
		b.each(cols, rows, func(_ *worker, r int) {
			to := into.V[r*into.Stride:]
			for i, v := range row(part, r, rows) {
				to[i*step] += v
			}
		})
	}
}

// outer is dst[r][c] += Σ_t a[t][r]·v[t][c] for n terms.
func (b *Backend) outer(dst, a, v kernels.Floats, n, rows, cols int) {
	if !b.reserve(packFloats) {
		return
	}
	across, height := ceil(cols, gradCols), gradHeight(rows, len(b.pool.workers))
	values := weightsOf(v.V, v.Stride)
	b.run(taskFunc(func(w *worker, unit int) {
		c, r := unit%across*gradCols, unit/across*height
		part := values
		part.Data = part.Data[4*c:]
		mixUnit(b.set, w.scratch.v[:packFloats], from(dst, r, c), kernels.Floats{V: a.V[r:], Stride: 1}, a.Stride, part, n,
			min(height, rows-r), min(gradCols, cols-c))
	}), across*ceil(rows, height), n*rows*cols)
}

// mixUnit adds y[t][c] += Σ_j p(t, j)·v[j][c] with p(t, j) = p.V[t·p.Stride + j·step], in
// ascending order of j. What is read more than once with a stride is packed: strides that
// are powers of two fall on few lines of a cache.
func mixUnit(set *kernels.Set, pack []float32, y, p kernels.Floats, step int, v kernels.Weights, keys, tokens, cols int) {
	size := v.Format.Size()
	values := tensor.Floats(pack[:tileKeys*tileCols], tileKeys*tileCols).Data
	for j := 0; j < keys; j += tileKeys {
		nj := min(tileKeys, keys-j)
		weights := kernels.Floats{V: p.V[j*step:], Stride: p.Stride}
		if step != 1 {
			weights = packTerms(pack[tileKeys*tileCols:], weights, step, nj, tokens)
		}
		for c := 0; c < cols; c += tileCols {
			nc := min(tileCols, cols-c)
			tile := v
			tile.Data = v.Data[j*v.Stride+c*size:]
			if tokens > 24 {
				packed := kernels.Weights{Data: values, Stride: nc * size, Format: v.Format}
				for i := range nj {
					copy(packed.Data[i*packed.Stride:(i+1)*packed.Stride], tile.Data[i*v.Stride:])
				}
				tile = packed
			}
			set.Mix(from(y, 0, c), weights, 1, tile, nj, tokens, nc)
		}
	}
}

// packTerms lays p(t, j) out by rows of t.
func packTerms(dst []float32, p kernels.Floats, step, keys, tokens int) kernels.Floats {
	const lines = 16 // rows of dst that are written at a time
	for begin := 0; begin < tokens; begin += lines {
		end := min(begin+lines, tokens)
		for j := range keys {
			at := j*step + begin*p.Stride
			for t := begin; t < end; t++ {
				dst[t*tileKeys+j] = p.V[at]
				at += p.Stride
			}
		}
	}
	return kernels.Floats{V: dst, Stride: tileKeys}
}

// sumRows is v[c·stride] += Σ_r x[r][c], in order of r.
func (b *Backend) sumRows(v []float32, stride int, x kernels.Floats, rows, cols int) {
	b.columns(cols, rows, func(sum []float32, r, c int) {
		axpy(sum, from(x, r, c).V[:len(sum)], 1)
	}, func(sum []float32, c int) {
		for i, s := range sum {
			v[(c+i)*stride] += s
		}
	})
}

// columns sums over rows, in order, what add adds to the sums of columns from c on.
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
