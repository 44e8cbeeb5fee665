package cpu

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

type embed struct {
	set   *kernels.Set
	dst   mat.Floats
	table matrix
	ids   []int32
	scale float32
}

// Embed widens rows of a table. It checks their indices.
func (b *Backend) Embed(dst tensor.Tensor, table backend.Matrix, ids []int32, scale float32) {
	if b.failed.Load() {
		return
	}
	m, ok := b.weight("embed", table)
	if !ok {
		return
	}
	if m.transposed {
		b.fail("embed: the table is transposed")
		return
	}
	out, ok := b.floats("embed", "result", dst, len(ids), m.cols)
	if !ok || !b.inside("embed", ids, m.rows) {
		return
	}
	if !b.reserve(m.unpackScratch()) {
		return
	}
	b.embed = embed{set: b.set, dst: out, table: m, ids: ids, scale: scale}
	b.run(&b.embed, len(ids), len(ids)*m.cols)
}

func (op *embed) run(w *worker, unit int) {
	dst := row(op.dst, unit, op.table.cols)
	op.table.unpack(op.set, mat.Floats{V: dst, Stride: len(dst)}, int(op.ids[unit]), 0, 1, len(dst), w.scratch.v)
	if op.scale != 1 {
		op.set.Vector.ScaleMax(dst, op.scale)
	}
}

// move copies rows and recovers from faults.
type move struct{ dst, src tensor.Tensor }

// Copy copies row by row; dst or src may have a stride.
func (b *Backend) Copy(dst, src tensor.Tensor) error {
	if dst.DType != src.DType || dst.Rank != src.Rank || dst.Dims != src.Dims {
		return fmt.Errorf("backend: copy of %v %v to %v %v", src.DType, src.Shape(), dst.DType, dst.Shape())
	}
	if b.failed.Load() {
		return b.Sync()
	}
	if dst.Elements() > 0 {
		b.move = move{dst: dst, src: src}
		b.run(&b.move, 1, 0)
	}
	if b.failed.Load() {
		return b.Sync()
	}
	return nil
}

// moveBytes limits one copy, because the scheduler cannot preempt it.
const moveBytes = 256 << 10

func (op *move) run(_ *worker, _ int) {
	d, rows, cols := op.dst.DType, max(op.dst.Rows(), 1), op.dst.Cols()
	to, from := op.dst.RowStride(), op.src.RowStride()
	if to == cols && from == cols {
		rows, cols = 1, rows*cols
	}
	width := int(d.Bytes(int64(cols)))
	for i := range rows {
		dst := op.dst.Data[d.Bytes(int64(i*to)):][:width]
		src := op.src.Data[d.Bytes(int64(i*from)):][:width]
		for len(dst) > 0 {
			n := copy(dst[:min(len(dst), moveBytes)], src)
			dst, src = dst[n:], src[n:]
		}
	}
}
