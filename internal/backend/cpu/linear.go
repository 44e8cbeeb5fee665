package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
)

// The size of a unit of Linear. The weights of a unit stay in the second-level cache for all its
// tokens. A call of a kernel on them takes tens of microseconds.
const (
	unitBytes    = 128 << 10
	unitTokens   = 96 // a multiple of every variant's block of tokens
	columnBlock  = 512
	columnTokens = 32 // up to this number of tokens multiply a transposed weight in place
	// panelPad keeps the rows of a panel out of the same set of the cache.
	panelPad = 16
	// turnLines is the number of stored rows transposed at a time.
	turnLines = 16
)

// access is the way in which a unit of Linear reads its weights.
type access uint8

const (
	inPlace  access = iota // as stored
	widened                // converted to a panel of float32 first
	columns                // transposed, as stored
	turned                 // transposed into a panel of float32 first
	unpacked               // transposed and quantised, dequantised some rows at a time
	codes                  // transposed integer codes, converted in registers
)

type linear struct {
	set        *kernels.Set
	y, x       mat.Floats
	w          matrix
	bias       []float32
	tokens     int
	kernel     kernel
	access     access
	unitRows   int
	unitTokens int
	tokenUnits int
	groups     packedGroups
	packed     bool // the tokens are packed and the units are rows of the weight
	decodedAt  int  // where the decoded rows of a coded weight begin in scratch
}

// Linear reads each weight once for up to 96 tokens, and for a prompt once per call. Its order of
// summation is the one documented in package kernels, whatever the weight's layout.
func (b *Backend) Linear(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
	b.single(backend.Product{Dst: dst, X: x, W: w, Bias: bias})
}

// prepare packs tokens in groups if there are many.
func (op *linear) prepare(threads int) needs {
	n := needs{scratch: op.plan(threads)}
	n.units = ceil(op.w.rows, op.unitRows) * op.tokenUnits
	if op.groups.tokens > 0 {
		n.packs = ceil(op.tokens, op.set.GEMM.GroupTokens)
		n.input = n.packs * op.groups.size
	}
	return n
}

func (op *linear) take(input []float32) { op.groups.x = input }
func (op *linear) ready()               { op.packed = true }
func (op *linear) base() *linear        { return op }
func (op *linear) weights(int) []byte   { return nil }

// linearOf checks the operands. It returns false if there is nothing to do.
func (b *Backend) linearOf(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) (linear, bool) {
	return b.linearAt(&backend.Product{Dst: dst, X: x, W: w, Bias: bias}, 0)
}

// linearAt is linearOf with a place for the bias among those of other products.
func (b *Backend) linearAt(p *backend.Product, place int) (linear, bool) {
	if b.failed.Load() {
		return linear{}, false
	}
	m, ok := b.weight("linear", p.W)
	if !ok {
		return linear{}, false
	}
	tokens := p.X.Rows()
	in, ok1 := b.floats("linear", "input", p.X, tokens, m.cols)
	out, ok2 := b.floats("linear", "result", p.Dst, tokens, m.rows)
	v, ok3 := b.vectorAt("linear", "bias", p.Bias, slotBias, place, m.rows)
	ok = ok1 && ok2 && ok3 && tokens > 0 && m.rows > 0
	return linear{set: b.set, y: out, x: in, w: m, bias: v, tokens: tokens}, ok
}

// plan divides the operation into units and returns the scratch per unit.
func (op *linear) plan(threads int) int {
	m := &op.w
	elem := op.planAccess()
	if op.kernel == dotGroups {
		return op.planGroups(threads)
	}
	fit := unitBytes / max(m.cols*elem, 1) // rows whose weights fit
	switch op.access {
	case columns:
		fit = columnBlock
	case unpacked:
		fit = packedBlock
	case turned:
		fit *= 4 // uses whole cache lines of the stored rows
	}
	// Use several units per thread, so that other threads can make up for the delay of one.
	fit = min(fit, ceil(m.rows, 4*threads))
	if fit > 16 {
		fit &^= 15
	}
	op.unitRows, op.unitTokens = min(max(fit, 4), m.rows), min(op.tokens, unitTokens)
	if op.access == inPlace && op.tokens == 1 && !m.isPacked() {
		op.unitRows = op.oneTokenRows(fit)
	}
	if op.access == turned || op.access == widened {
		op.unitTokens = op.tokens // the panel is made only once
	}
	if op.access == codes {
		op.unitRows, op.unitTokens = quant.SumColumns, min(op.tokens, sumTokens)
	}
	op.tokenUnits = ceil(op.tokens, op.unitTokens)
	switch op.access {
	case codes:
		return max(op.unitTokens*op.set.Lanes*quant.SumColumns+quant.SumScratch(op.w.columns(0)), op.unpackedScratch())
	case inPlace:
		if op.kernel == codeDots {
			w := m.view(0, op.unitRows)
			return quant.DotScratch(&w, op.unitTokens)
		}
		return m.unpackScratch()
	case columns:
		return op.set.Lanes * op.unitRows
	case unpacked:
		return op.unpackedScratch()
	}
	return op.panelScratch()
}

// oneTokenRows returns the number of rows in a unit for one token, if fit rows fit. It has as
// many streams as the kernels read at once, or half as many for long rows. Each stream has an odd
// number of rows, because memory is slower if streams are powers of two apart. For coded rows it
// returns codedUnitRows.
func (op *linear) oneTokenRows(fit int) int {
	if op.w.isCoded() {
		return codedUnitRows(fit, op.w.rows)
	}
	const streams = 8
	each := op.w.cols * op.w.Format.Size()
	rows := max(fit/streams, 1) | 1
	if rows > 1 && rows*streams*each > callBytes {
		rows -= 2
	}
	rows *= streams
	if rows*each > callBytes {
		rows = streams / 2
	}
	return min(rows, op.w.rows)
}

// planAccess chooses how units read their weights, and returns the bytes that an element then
// takes in the cache.
func (op *linear) planAccess() (elem int) {
	m := &op.w
	op.access, elem = inPlace, m.Format.Size()
	switch {
	case op.kernel == columnSums:
		op.access = columns
	case op.kernel == columnSumsUnpacked:
		op.access, elem = unpacked, 4
	case op.kernel == codeSums:
		op.access = codes
	case op.kernel == dotBlocks || op.kernel == codeDots:
		elem = 1
	case m.transposed:
		op.access, elem = turned, 4
	case op.kernel == dotWidened || m.isPacked():
		op.access, elem = widened, 4
	}
	return elem
}

// panelScratch returns the length of panel's scratch.
func (op *linear) panelScratch() int {
	m := &op.w
	switch op.access {
	case widened:
		return op.unitRows*m.cols + m.unpackScratch()
	case turned:
		return op.unitRows*(m.cols+panelPad+turnLines*m.step) + m.unpackScratch()
	}
	return 0
}

func (op *linear) run(w *worker, unit int) {
	if op.groups.tokens > 0 && !op.packed {
		op.packGroup(unit)
		return
	}
	r := unit / op.tokenUnits * op.unitRows
	t := unit % op.tokenUnits * op.unitTokens
	rows, tokens := min(op.unitRows, op.w.rows-r), min(op.unitTokens, op.tokens-t)
	y, x := from(op.y, t, r), from(op.x, t, 0)
	switch {
	case op.groups.tokens > 0:
		w.record(dotGroups)
		op.mulGroups(w.scratch.v, r, rows)
	case op.access == inPlace:
		op.mulInPlace(w, y, x, r, rows, tokens)
	case op.access == columns:
		w.record(columnSums)
		op.addColumns(y, x, w.scratch.v, r, rows, tokens)
	case op.access == unpacked:
		w.record(columnSumsUnpacked)
		op.addUnpacked(y, x, w.scratch.v, r, rows, tokens)
	case op.access == codes:
		w.record(codeSums)
		op.addCodes(y, x, w.scratch.v, r, rows, tokens)
	default:
		if op.access == turned {
			w.record(dotTransposed)
		} else {
			w.record(dotWidened)
		}
		panel := op.panel(w.scratch.v, r, rows)
		for begin := 0; begin < tokens; begin += unitTokens {
			op.set.GEMV.Mul(&gemv.Product{Y: from(y, begin, 0), W: panel, X: from(x, begin, 0), Rows: rows, Tokens: min(unitTokens, tokens-begin), N: op.w.cols})
		}
	}
	op.addBias(t, tokens, r, rows)
}

// addBias adds the bias, if there is one, to rows from r on of tokens from t on.
func (op *linear) addBias(t, tokens, r, rows int) {
	if op.bias == nil {
		return
	}
	for i := range tokens {
		op.set.Vector.AddRounded(row(from(op.y, t, r), i, rows), op.bias[r:][:rows], 1)
	}
}

// mulInPlace computes rows of a weight as stored.
func (op *linear) mulInPlace(w *worker, y, x mat.Floats, r, rows, tokens int) {
	m := &op.w
	switch op.kernel {
	case dotBlocks: // one token
		w.record(dotBlocks)
		op.set.Quant.DotBlocks(y.V, m.view(r, rows), row(x, 0, m.cols))
		return
	case codeDots:
		w.record(codeDots)
		view := m.view(r, rows)
		op.set.Quant.DotRows(y, &view, x, tokens, w.scratch.v)
		return
	}
	w.record(dotRows)
	op.set.GEMV.Mul(&gemv.Product{Y: y, W: op.at(r), X: x, Rows: rows, Tokens: tokens, N: op.w.cols})
}

// at returns the weight from row r on.
func (op *linear) at(r int) mat.Weights {
	w := op.w.Weights
	w.Data = w.Data[(r-op.w.first)*w.Stride:]
	return w
}

// addColumns computes rows of a transposed weight as stored.
func (op *linear) addColumns(y, x mat.Floats, lanes []float32, r, rows, tokens int) {
	w := op.w.Weights
	w.Data = w.Data[r*w.Format.Size():]
	lanes = lanes[:op.set.Lanes*rows]
	for t := range tokens {
		clear(lanes)
		op.set.GEMV.AddLanes(lanes, row(x, t, op.w.cols), w, rows)
		op.set.GEMV.FoldLanes(lanes, rows)
		copy(row(y, t, rows), lanes)
	}
}

// panel returns rows of the logical matrix from r on as float32, in scratch.
func (op *linear) panel(scratch []float32, r, rows int) mat.Weights {
	stride := op.w.cols
	if op.access == turned {
		stride += panelPad
	}
	panel, rest := scratch[:rows*stride], scratch[rows*stride:]
	if op.access == widened {
		for i := range rows {
			op.w.unpack(op.set, mat.Floats{V: panel[i*stride:], Stride: stride}, (r+i)*op.w.step, 0, 1, op.w.cols, rest)
		}
		return weightsOf(panel, stride)
	}
	width := (rows-1)*op.w.step + 1
	for k := 0; k < op.w.cols; k += turnLines {
		n := min(turnLines, op.w.cols-k)
		op.w.unpack(op.set, mat.Floats{V: rest, Stride: width}, k, r*op.w.step, n, width, rest[turnLines*width:])
		for i := range rows {
			to := panel[i*stride+k:][:n]
			for j := range to {
				to[j] = rest[j*width+i*op.w.step]
			}
		}
	}
	return weightsOf(panel, stride)
}

// weightsOf returns a float32 matrix as weights.
func weightsOf(v []float32, stride int) mat.Weights {
	return mat.Weights{Data: tensor.Floats(v, len(v)).Data, Stride: 4 * stride, Format: mat.Float32}
}
