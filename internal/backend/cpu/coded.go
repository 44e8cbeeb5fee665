package cpu

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// codedMatrix checks a coded bfloat16 weight. Its kernel is the one for the uncoded weight.
func (b *Backend) codedMatrix(op string, m backend.Matrix) (matrix, bool) {
	q := m.Quant
	out := matrix{rows: m.OutRows(), cols: m.InCols(), step: max(m.RowStep, 1), row: m.Row}
	out.Weights = mat.Weights{Format: mat.BFloat16, Stride: 2 * q.Width}
	out.coded = coded.Matrix{Data: m.Data, Rows: q.Height, Cols: q.Width}
	if op != "linear" {
		b.fail("%s: a weight stored as %v cannot be used", op, q.Format)
		return matrix{}, false
	}
	last := m.Row + (out.rows-1)*out.step
	if m.Rank != 2 || m.Transposed || m.Col != 0 || out.cols != q.Width || m.Row < 0 || last >= q.Height || !out.coded.Holds() {
		b.fail("%s: weight %v stored as %v of %d × %d cannot be used by the cpu: it has %d bytes", op, m.Shape(), q.Format, q.Height, q.Width, len(m.Data))
		return matrix{}, false
	}
	return out, true
}

// likeCoded makes m a coded weight without data if q is coded.
func (m *matrix) likeCoded(q *backend.Quant) bool {
	if q.Format != meta.QuantCoded {
		return false
	}
	m.Weights = mat.Weights{Format: mat.BFloat16, Stride: 2 * q.Width}
	m.coded = coded.Matrix{Rows: q.Height, Cols: q.Width}
	return true
}

// isCoded reports whether the rows of m are coded, so that products decode them first.
func (m *matrix) isCoded() bool { return m.coded.Rows > 0 }

// A decodedProduct holds copies of the current products for one worker. Their weights are the
// decoded rows of a unit.
type decodedProduct struct {
	dots   linear
	bf16   bf16Product
	panels panelProduct
	splits splitDot
	small  smallBatch
}

// isFused reports whether the kernel of p decodes rows of a coded weight while it multiplies
// them. Other kernels read rows that are decoded in memory.
func isFused(p product) bool {
	l := p.base()
	if l.w.step != 1 {
		return false
	}
	switch p.(type) {
	case *bf16Product:
		return l.kernel == pairDots && l.tokens < aheadTokens && l.set.Coded.HasPairs(l.w.cols) || inCodedTiles(l) || packsCoded(l)
	case *splitDot:
		return l.tokens == 1 && l.set.Coded.HasSplit(l.w.cols)
	}
	return false
}

// inCodedTiles reports whether a coded weight of l is decoded into tiles.
func inCodedTiles(l *linear) bool {
	return (l.kernel == amxOneToken || l.kernel == amxInPlace) && l.set.Coded.HasTiles(l.w.cols)
}

// packsCoded reports whether a coded weight of l is decoded into packs.
func packsCoded(l *linear) bool {
	inPacks := l.kernel == amxSteps || l.kernel == bf16Tiles || l.kernel == bf16FewTokens
	return inPacks && l.w.step == 1 && l.set.Coded.HasPacks(l.w.cols)
}

// codedUnitRows returns the largest number of rows, up to fit, that is a multiple of the rows per
// call of the kernels for coded weights, but at least the rows of one call. Kernels can start at
// any row. With a partial call at the end of each unit, products of several tokens with long rows
// take up to 1.4 times as long.
func codedUnitRows(fit, rows int) int {
	const call = coded.BandRows
	return min(max(fit&^(call-1), call), rows)
}

// decodedFloats returns the scratch in floats for the decoded weights of a unit of p, or 0 if
// they stay in registers.
func decodedFloats(p product) int {
	l := p.base()
	switch {
	case !l.w.isCoded():
		return 0
	case isFused(p) && inCodedTiles(l):
		return coded.TileScratch
	case isFused(p):
		return 0
	}
	rows := l.unitRows
	if _, ok := p.(*smallBatch); ok {
		rows *= 2 // the last unit also has the remaining rows
	}
	return min(rows, l.w.rows) * coded.Stride(l.w.cols) / 4
}

// unitRange returns the rows of a unit of p.
func unitRange(p product, unit int) (first, rows int) {
	l := p.base()
	switch p.(type) {
	case *linear:
		unit /= l.tokenUnits
	case *smallBatch:
		if first = unit * l.unitRows; l.w.rows-first < 2*l.unitRows {
			return first, l.w.rows - first
		}
	}
	first = unit * l.unitRows
	return first, min(l.unitRows, l.w.rows-first)
}

// runCoded computes a unit of a product with a coded weight. It decodes rows while it multiplies
// them, or decodes them in scratch memory and uses the ordinary kernel. The kernel and the bits
// are those of the uncoded weight either way.
func (w *worker) runCoded(p product, unit int) {
	l := p.base()
	if packsCoded(l) {
		p.run(w, unit)
		return
	}
	first, rows := unitRange(p, unit)
	if isFused(p) {
		w.runFused(p, first, rows)
		return
	}
	if w.decoded == nil {
		w.decoded = new(decodedProduct)
	}
	own := w.decodeRows(l, first, rows)
	switch p := p.(type) {
	case *linear:
		w.decoded.dots = *p
		w.decoded.dots.w = own
		w.decoded.dots.run(w, unit)
	case *bf16Product:
		w.decoded.bf16 = *p
		w.decoded.bf16.w = own
		w.decoded.bf16.run(w, unit)
	case *panelProduct:
		w.decoded.panels = *p
		w.decoded.panels.w = own
		w.decoded.panels.run(w, unit)
	case *splitDot:
		w.decoded.splits = *p
		w.decoded.splits.w = own
		w.decoded.splits.run(w, unit)
	case *smallBatch:
		w.decoded.small = *p
		w.decoded.small.w = own
		w.decoded.small.run(w, unit)
	}
}

// runFused computes rows of a product with a coded weight and decodes them meanwhile.
func (w *worker) runFused(p product, first, rows int) {
	l := p.base()
	w.record(l.kernel)
	y, row := from(l.y, 0, first), l.w.row+first
	switch op := p.(type) {
	case *bf16Product:
		switch l.kernel {
		case amxInPlace:
			w.multiplyStrips(op, first, rows)
			return // including its bias
		case amxOneToken:
			l.set.Coded.MulTiles(coded.TilesProduct{C: y.V, W: &l.w.coded, Row: row, Rows: rows, X: op.pairs.V, Scratch: w.scratch.v[l.decodedAt:]})
		default:
			l.set.Coded.MulTokens(coded.TokensProduct{Y: y, W: &l.w.coded, Row: row, X: op.pairs, Rows: rows, Tokens: l.tokens, Sums: w.scratch.v})
		}
	case *splitDot:
		l.set.Coded.MulSplit(y.V[:rows], &l.w.coded, row, op.groups.x)
	}
	l.addBias(0, l.tokens, first, rows)
}

// Rows of at most streamedColumns are prefetched a unit ahead, beside products of more than streamedTokens. The hardware
// prefetcher follows longer rows by itself, and memory bounds fewer tokens either way.
const (
	streamedColumns = 4096
	streamedTokens  = 2 * gemm.PanelTokens
)

// multiplyStrips multiplies rows by all tokens, some panels at a time. Each pass prefetches an equal part of the next unit's
// rows.
func (w *worker) multiplyStrips(op *bf16Product, first, rows int) {
	const most = coded.MostPanels * gemm.PanelTokens
	c := w.scratch.v
	p := coded.TilesProduct{C: c, W: &op.w.coded, Row: op.w.row + first, Rows: rows, XStride: op.words, Scratch: c[op.decodedAt:]}
	if op.w.cols <= streamedColumns && op.tokens > streamedTokens {
		p.Next, p.Parts = w.next, ceil(op.tokens, most)
	}
	for t := 0; t < op.tokens; t += most {
		tokens := min(most, op.tokens-t)
		p.X, p.Panels = op.panels[t/gemm.PanelTokens*op.words:], ceil(tokens, gemm.PanelTokens)
		op.set.Coded.MulTiles(p)
		op.transpose(mat.Floats{V: c, Stride: coded.RowSums(p.Panels)}, first, rows, t, tokens)
		p.Part++
	}
}

// decodeRows decodes rows of l's weight from first on. It returns a weight with only those rows.
func (w *worker) decodeRows(l *linear, first, rows int) matrix {
	stride := coded.Stride(l.w.cols)
	floats := w.scratch.v[l.decodedAt:][:rows*stride/4]
	data := tensor.Floats(floats, len(floats)).Data
	if m := &l.w; m.step == 1 {
		l.set.Coded.Decode(data, &m.coded, m.row+first, rows)
	} else {
		for i := range rows {
			l.set.Coded.Decode(data[i*stride:][:stride], &m.coded, m.row+(first+i)*m.step, 1)
		}
	}
	own := l.w
	own.coded, own.first, own.step, own.row = coded.Matrix{}, first, 1, 0
	own.Weights = mat.Weights{Data: data, Stride: stride, Format: mat.BFloat16}
	return own
}

// codedRows returns the rows of the table of kernels for coded weights, which are those for plain
// weights.
func codedRows(plain []KernelRow) []KernelRow {
	rows := slices.Clone(plain)
	for i := range rows {
		rows[i].Format = meta.QuantCoded.String()
	}
	return rows
}
