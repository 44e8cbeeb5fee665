package cpu

import (
	"github.com/heftai/heft/internal/kernels/quant"
)

// The size of a unit of minifloat.
const (
	minifloatRows    = 12 // a multiple of the rows that any kernel for groups computes at a time
	minifloatStreams = 8  // streams of rows for one token
)

// minifloat is a Linear of E4M3 or MXFP4 weights that are multiplied as stored; see
// qgemm.MulMinifloat. It serves generated tokens and, if no activation may be rounded, all
// tokens. Many tokens are multiplied in small groups, while the weights of a unit stay in the
// second-level cache.
type minifloat struct{ linear }

func (op *minifloat) prepare(threads int) needs {
	scratch := op.plan(threads)
	return needs{input: op.tokens * op.set.QGEMM.MinifloatFloats(&op.w.packed, op.w.cols), packs: op.tokens, units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

// plan divides the weight into units and returns the scratch per unit.
func (op *minifloat) plan(threads int) int {
	m := &op.w
	each := m.cols * m.packed.RowBytes() / m.packed.Width
	share := ceil(m.rows, 4*threads) // several units per thread
	if op.tokens == 1 {
		op.unitRows = op.streamRows(share) * minifloatStreams
	} else {
		op.unitRows = max(min(splitUnit/each, share)/minifloatRows, 1) * minifloatRows
	}
	op.unitRows = min(op.unitRows, m.rows)
	scratch := 0
	for group := op.set.QGEMM.MinifloatGroup(op.tokens); group > 0; group /= 2 {
		scratch = max(scratch, op.set.QGEMM.MinifloatScratch(&m.packed, op.unitRows, group, m.cols))
	}
	return scratch
}

// streamRows returns the number of rows in each stream of a unit for one token, of which a thread
// has several. The number is odd, as in oneTokenRows. If blocks of rows share scales, a kernel
// computes the rows of one block, and prefetches the streams of the next call as if it had as
// many rows. Units are then equal parts of blocks, or whole blocks, and larger, because the token
// is scaled for each unit.
func (op *minifloat) streamRows(share int) int {
	each := op.w.cols * op.w.packed.RowBytes() / op.w.packed.Width
	together := op.set.QGEMM.MinifloatRows(&op.w.packed, op.w.cols)
	if together == 0 || together >= op.w.rows || together%minifloatStreams != 0 {
		return max(min(unitBytes/each, share)/minifloatStreams, 1) | 1
	}
	streams := together / minifloatStreams
	n := max(min(2*unitBytes/each, share)/minifloatStreams, 1)
	for n > streams && n%streams != 0 || n < streams && streams%n != 0 {
		n--
	}
	return n
}

func (op *minifloat) run(w *worker, unit int) {
	set, m := op.set, &op.w
	size := set.QGEMM.MinifloatFloats(&m.packed, m.cols)
	if !op.packed {
		if t, group := op.groupOf(unit); t == unit {
			set.QGEMM.PackMinifloat(op.groups.x[t*size:], &m.packed, from(op.x, t, 0), group, m.cols)
		}
		return
	}
	r := unit * op.unitRows
	rows := min(op.unitRows, m.rows-r)
	for t := 0; t < op.tokens; {
		group := set.QGEMM.MinifloatGroup(op.tokens - t)
		w.record(minifloatCodes)
		set.QGEMM.MulMinifloat(from(op.y, t, r), quant.View{Packed: &m.packed, Row: m.row + r*m.step, Step: m.step, Rows: rows, Cols: m.cols}, op.groups.x[t*size:], w.scratch.v, group)
		t += group
	}
	op.addBias(0, op.tokens, r, rows)
}

// groupOf returns the first token of the group that contains token i, and the size of the group.
func (op *minifloat) groupOf(i int) (first, group int) {
	most := op.set.QGEMM.MinifloatGroup(op.tokens)
	first = i / most * most
	for group = op.set.QGEMM.MinifloatGroup(op.tokens - first); i >= first+group; group = op.set.QGEMM.MinifloatGroup(op.tokens - first) {
		first += group
	}
	return first, group
}
