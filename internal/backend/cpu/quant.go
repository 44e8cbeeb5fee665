package cpu

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/meta"
)

// quantised checks a quantised weight.
func (b *Backend) quantised(op string, m backend.Matrix) (matrix, bool) {
	q := m.Quant
	out := matrix{rows: m.OutRows(), cols: m.InCols(), transposed: m.Transposed, step: max(m.RowStep, 1), row: m.Row, col: m.Col, ascending: q.Ascending}
	p := &out.packed
	var ok bool
	if p.Packing, ok = quant.Named(q.Format.String()); !ok || m.Rank != 2 {
		b.fail("%s: weight %v stored as %v cannot be used by the cpu", op, m.Shape(), q.Format)
		return matrix{}, false
	}
	p.Codes, p.Width, p.Height, p.Rows, p.Columns = m.Data, q.Width, q.Height, q.Rows, q.Columns
	p.ZeroWords = q.ZeroWords
	p.Scales, p.Zeros, p.Index = q.Scales.Data, q.Zeros.Data, q.Index.Data
	if q.Format.Row().Codes.Flat {
		if !b.fourBits(op, q, p) {
			return matrix{}, false
		}
	} else if p.Global = 1; len(q.Global.Data) >= 4 {
		p.Global = math.Float32frombits(binary.LittleEndian.Uint32(q.Global.Data))
	}
	if q.Format.Row().FloatScales() {
		if p.ScaleFormat, ok = format(q.Scales.DType); !ok {
			b.fail("%s: scales of dtype %v cannot be used by the cpu", op, q.Scales.DType)
			return matrix{}, false
		}
	}
	rows, width := m.Row+m.Dims[0], m.Col+m.Dims[1]
	if m.Row < 0 || m.Col < 0 || width > p.Width || p.Rows < 1 || p.Columns < 1 || !q.Holds(m.Data, rows) {
		b.fail("%s: weight %v stored as %v has %d bytes of codes and %d of scales", op, m.Shape(), q.Format, len(p.Codes), len(p.Scales))
		return matrix{}, false
	}
	return out, true
}

// fourBits decodes the state of a bitsandbytes weight.
func (b *Backend) fourBits(op string, q *backend.Quant, p *quant.Packed) bool {
	state, err := quant.ReadState(q.Global.Data)
	switch {
	case err != nil:
		b.fail("%s: %s: %w", op, q.Quant.Global, err)
	case state.Elements != q.Columns:
		b.fail("%s: %s: got blocksize %d, want %d of the number of scales", op, q.Quant.Global, state.Elements, q.Columns)
	case (q.Scales.DType == meta.Uint8) != (q.Zeros.Data != nil && q.Index.Data != nil):
		b.fail("%s: %s: got scales of dtype %v, want float32, or uint8 with nested scales and their table", op, q.Quant.Scales, q.Scales.DType)
	default:
		p.Round, p.Global, p.ScaleFormat = state.DType, state.Offset, mat.Float32
		if q.Scales.DType != meta.Uint8 {
			p.Zeros, p.Index = nil, nil
		}
		return true
	}
	return false
}

// unpack dequantises stored rows × cols elements, from (row, col) of the view on, into dst.
func (m *matrix) unpack(set *kernels.Set, dst mat.Floats, row, col, rows, cols int, scratch []float32) {
	if m.isPacked() {
		set.Quant.Unpack(dst, quant.View{Packed: &m.packed, Row: m.row + row, Col: m.col + col, Rows: rows, Cols: cols}, scratch)
		return
	}
	for i := range rows {
		set.Vector.Widen(dst.V[i*dst.Stride:][:cols], m.Data[(row-m.first+i)*m.Stride+col*m.Format.Size():], m.Format)
	}
}

func (m *matrix) isPacked() bool { return m.packed.Packing != 0 }

// unpackScratch returns the length of unpack's scratch.
func (m *matrix) unpackScratch() int {
	if m.isPacked() {
		return quant.UnpackScratch
	}
	return 0
}

// The size of a unit of addUnpacked. Its lanes and the dequantised block stay in the first-level
// cache.
const (
	packedBlock  = 128 // columns
	packedLines  = 32  // stored rows, a multiple of every variant's lanes
	packedTokens = 4   // the number of tokens up to which a transposed weight is read in this way
)

// The largest numbers of tokens for codeSums and codeDots, and the largest number in a unit of
// codeSums, whose lanes stay in the second-level cache.
const (
	codeTokens = 32
	sumTokens  = 8
)

// view returns rows from r on of a weight stored by rows.
func (m *matrix) view(r, rows int) quant.View {
	return quant.View{Packed: &m.packed, Row: m.row + r*m.step, Step: m.step, Col: m.col, Rows: rows, Cols: m.cols}
}

// columns returns the stored columns of codeSums from row r of the weight on.
func (m *matrix) columns(r int) *quant.View {
	return &quant.View{Packed: &m.packed, Row: m.row, Step: m.step, Col: m.col + r, Rows: m.cols, Cols: quant.SumColumns}
}

// addCodes computes rows of a transposed weight of integer codes, which are widened in registers.
func (op *linear) addCodes(y, x mat.Floats, scratch []float32, r, rows, tokens int) {
	each := op.set.Lanes * quant.SumColumns
	lanes := scratch[:tokens*each]
	for c := 0; c < rows; c += quant.SumColumns {
		clear(lanes)
		if !op.set.Quant.AddCodes(lanes, x, tokens, op.w.columns(r+c), scratch[tokens*each:]) {
			op.addUnpacked(y, x, scratch, r, rows, tokens)
			return
		}
		for t := range tokens {
			own, to := lanes[t*each:][:each], row(from(y, 0, c), t, quant.SumColumns)
			op.set.GEMV.FoldLanes(own, quant.SumColumns)
			for i := range to {
				to[i] = own[op.w.packed.Packing.SumPlace(i)]
			}
		}
	}
}

// unpackedScratch returns the length of addUnpacked's scratch.
func (op *linear) unpackedScratch() int {
	return op.unitRows*(op.set.Lanes*op.unitTokens+packedLines) + op.w.unpackScratch()
}

// addUnpacked is addColumns for a quantised weight. It dequantises some stored rows at a time for
// all tokens.
func (op *linear) addUnpacked(y, x mat.Floats, scratch []float32, r, rows, tokens int) {
	lanes, rest := scratch[:op.set.Lanes*rows*tokens], scratch[op.set.Lanes*rows*tokens:]
	weights := weightsOf(rest[:packedLines*rows], rows)
	block := mat.Floats{V: rest, Stride: rows}
	clear(lanes)
	for k := 0; k < op.w.cols; k += packedLines { // whole rounds of the lanes
		n := min(packedLines, op.w.cols-k)
		op.w.unpack(op.set, block, k, r, n, rows, rest[packedLines*rows:])
		for t := range tokens {
			op.set.GEMV.AddLanes(lanes[t*op.set.Lanes*rows:][:op.set.Lanes*rows], row(x, t, op.w.cols)[k:k+n], weights, rows)
		}
	}
	for t := range tokens {
		own := lanes[t*op.set.Lanes*rows:][:op.set.Lanes*rows]
		op.set.GEMV.FoldLanes(own, rows)
		copy(row(y, t, rows), own)
	}
}
