package cpu

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// The size of a unit of panelProduct.
const (
	panelUnitRows = 128
	// Up to panelInputBytes the tokens of a prompt stay in the second-level cache while rows of
	// weights are packed by steps of k, each of which then stays in the first-level cache. Of
	// more tokens a larger step of k stays in the second-level cache, while all rows of the unit
	// are packed for it one after another.
	panelInputBytes  = 1 << 20
	panelStep        = 256
	panelLongStep    = 704
	panelShortTokens = 28 // the number of tokens up to which a step has panelShortStep columns
	panelShortStep   = 128
	// linePad keeps lines out of the same set of the cache.
	linePad = 16
)

// panelProduct is a Linear by outer products of panels: for each k, a vector of rows of the
// weight times each token. Each sum is in one lane, so that no lanes are folded. This is the
// fastest order for many tokens, and the order of all prompts.
type panelProduct struct {
	linear
	size  int  // tokens in a panel
	step  int  // step of k
	long  bool // the loop over k is outside the one over a unit's rows
	lines int  // floats of scratch for weights that cannot be packed in place
}

func (op *panelProduct) prepare(threads int) needs {
	panels, scratch := op.plan(threads)
	return needs{input: panels * op.size, packs: panels, units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

// plan divides the operation into units. It returns the number of panels of tokens, and the
// scratch for a unit of rows.
func (op *panelProduct) plan(threads int) (panels, scratch int) {
	m, lanes := &op.w, op.set.GEMM.PanelLanes()
	width := 2 * lanes
	panels, op.size = ceil(op.tokens, op.set.GEMM.PanelRows()), lanes*m.cols
	switch {
	case 4*panels*op.size > panelInputBytes:
		op.step, op.long = panelLongStep, true
	case op.tokens <= panelShortTokens:
		op.step = panelShortStep
	default:
		op.step = panelStep
	}
	step := min(op.step, m.cols)
	op.unitRows = ceil(min(panelUnitRows, ceil(m.rows, 4*threads)), width) * width
	switch {
	case m.transposed:
		op.lines = step * ((lanes-1)*m.step + 1)
	case m.isPacked():
		op.lines = lanes * (step + linePad)
	}
	return panels, step*width + op.lines + m.unpackScratch()
}

func (op *panelProduct) run(w *worker, unit int) {
	if !op.packed {
		op.tokenPanel(unit)
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, op.w.rows-r)
	w.record(panelSums)
	op.product(w.scratch.v, r, rows)
	op.addBias(0, op.tokens, r, rows)
}

// tokenPanel packs the tokens of a panel.
func (op *panelProduct) tokenPanel(unit int) {
	high := op.set.GEMM.PanelRows()
	t := unit * high
	op.set.GEMM.PackColumns(op.groups.x[unit*op.size:], from(op.x, t, 0), min(high, op.tokens-t), op.w.cols)
}

// product computes rows from r on.
func (op *panelProduct) product(scratch []float32, r, rows int) {
	both := 2 * op.set.GEMM.PanelLanes()
	if op.long {
		for k := 0; k < op.w.cols; k += op.step {
			for i := 0; i < rows; i += both {
				next := both * op.w.Stride
				if i+both >= rows {
					next = op.step*op.w.Format.Size() - i*op.w.Stride
				}
				op.tile(scratch, r+i, min(both, rows-i), k, next)
			}
		}
		return
	}
	for i := 0; i < rows; i += both {
		for k := 0; k < op.w.cols; k += op.step {
			next := op.step * op.w.Format.Size()
			if k+op.step >= op.w.cols {
				next = both*op.w.Stride - k*op.w.Format.Size()
			}
			op.tile(scratch, r+i, min(both, rows-i), k, next)
		}
	}
}

// tile adds the products of op.step columns from k on to up to two panels of rows from r on. The
// weights that are packed next begin next bytes after these.
func (op *panelProduct) tile(scratch []float32, r, rows, k, next int) {
	lanes, n := op.set.GEMM.PanelLanes(), min(op.step, op.w.cols-k)
	both, rest := scratch[:2*lanes*n], scratch[2*lanes*n:]
	op.weightPanel(both[:lanes*n], rest, r, min(rows, lanes), k, n, next)
	op.weightPanel(both[lanes*n:], rest, r+lanes, max(0, rows-lanes), k, n, next)
	op.set.GEMM.SumPanels(gemm.PanelProduct{C: from(op.y, 0, r), A: op.groups.x[k*lanes:], AStride: op.size, B: both, Rows: op.tokens, Cols: rows, N: n, Add: k > 0})
}

// weightPanel packs n elements from k on of the rows of a panel from r on.
func (op *panelProduct) weightPanel(dst, scratch []float32, r, rows, k, n, next int) {
	m := &op.w
	lines, scratch := scratch[:op.lines], scratch[op.lines:]
	switch {
	case rows == 0:
		clear(dst)
	case m.transposed:
		width := (rows-1)*m.step + 1
		m.unpack(op.set, mat.Floats{V: lines, Stride: width}, k, r*m.step, n, width, scratch)
		if m.step == 1 {
			op.set.GEMM.PackLines(mat.Floats{V: dst}, mat.Floats{V: lines, Stride: width}, rows, rows, n)
			return
		}
		lanes := op.set.GEMM.PanelLanes()
		clear(dst)
		for j := range n {
			for i := range rows {
				dst[j*lanes+i] = lines[j*width+i*m.step]
			}
		}
	case m.packed.Height > 0 && (m.col|k|n)%quant.BlockColumns == 0 && op.set.QGEMM.WidenInterleaved(dst, quant.View{Packed: &m.packed, Row: m.row + r*m.step, Step: m.step, Col: m.col + k, Rows: rows, Cols: n}):
	case m.isPacked():
		stride := n + linePad
		for i := range rows {
			m.unpack(op.set, mat.Floats{V: lines[i*stride:], Stride: stride}, (r+i)*m.step, k, 1, n, scratch)
		}
		op.set.GEMM.WidenColumns(dst, weightsOf(lines, stride), rows, n, 0)
	default:
		w := op.at(r)
		w.Data = w.Data[k*m.Format.Size():]
		op.set.GEMM.WidenColumns(dst, w, rows, n, next)
	}
}
