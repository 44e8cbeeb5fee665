//go:build cuda

package cuda

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var (
	_ backend.Recurrent = (*Backend)(nil)
	_ backend.Scans     = (*Backend)(nil)
)

const (
	spanWords     = 6        // of Span in recurrent.h
	columnThreads = 32       // of a block that updates columns of states
	mostColumns   = 48 << 10 // bytes of shared memory for a block's columns and vectors
)

// states are the checked states of an operation: the address of the operation's part of the first
// slot, and the stride of slots in bytes.
type states struct {
	at, stride uint64
	table      []int32 // the spans in the layout of recurrent.h
}

// columns returns the number of columns that a block holds in shared memory together with some
// vectors, and their bytes. A column and a vector each have rows float32 values.
func (b *Backend) columns(op string, rows, vectors int) (n, bytes int) {
	if n = min(columnThreads, mostColumns/(4*rows)-vectors); n < 1 {
		b.fail("%s: columns of %d numbers do not fit the memory of a block", op, rows)
	}
	return n, 4 * rows * (n + vectors)
}

// states checks s for an operation on the given number of rows that uses size elements of each
// slot.
func (b *Backend) states(op string, s backend.States, rows, size int) (out states) {
	slots := int32(0)
	if !s.Memory.IsZero() {
		m := b.matrix(op, "state", s.Memory, s.Memory.Rows(), s.Memory.Cols())
		if s.First < 0 || s.First+size > s.Memory.Cols() {
			b.fail("%s: states of %d elements, want %d from %d on", op, s.Memory.Cols(), size, s.First)
		}
		out.at, out.stride, slots = m.at+4*uint64(s.First), m.stride, int32(s.Memory.Rows())
	}
	next := 0
	b.rows = b.rows[:0]
	for i := range s.Spans {
		span := &s.Spans[i]
		if span.First != next || span.Rows < 0 || span.From < -1 || span.From >= slots || span.To < -1 || span.To >= slots ||
			span.SaveAfter < 0 || span.SaveAfter > span.Rows || span.SaveAfter > 0 && (span.Save < 0 || span.Save >= slots) {
			b.fail("%s: invalid span of states: %+v of %d slots, want first row %d", op, *span, slots, next)
		}
		next += span.Rows
		b.rows = append(b.rows, int32(span.First), int32(span.Rows), span.From, span.To, int32(span.SaveAfter), span.Save)
	}
	if next != rows {
		b.fail("%s: spans of states cover %d of %d rows", op, next, rows)
	}
	out.table = b.rows
	return out
}

// eachSpans calls f with the number and the address of as many spans as one launch supports, until
// all are done.
func (b *Backend) eachSpans(s *states, f func(n int, spans uint64)) {
	for table := s.table; len(table) > 0 && b.err == nil; {
		part := table[:min(len(table), spanWords*mostBlocksY)]
		table = table[len(part):]
		b.room(len(part))
		f(len(part)/spanWords, send(b, part))
	}
}

// ShortConv starts a thread for each channel of a sequence.
func (b *Backend) ShortConv(dst, x, weight, bias tensor.Tensor, s backend.States, act meta.Activation) {
	const op = "convolution"
	if b.err != nil {
		return
	}
	rows, channels := x.Rows(), x.Cols()
	kernel := weight.Elements() / max(channels, 1)
	if act != meta.ActNone && act != meta.ActSiLU || kernel < 1 {
		b.fail("%s: activation %d after a kernel of %d tokens", op, act, kernel)
		return
	}
	out, in := b.matrix(op, "result", dst, rows, channels), b.matrix(op, "operand", x, rows, channels)
	w, v := b.dense(op, "weight", weight, channels*kernel, channels*kernel), b.dense(op, "bias", bias, channels, channels)
	st := b.states(op, s, rows, (kernel-1)*channels)
	b.eachSpans(&st, func(n int, spans uint64) {
		b.launch(kernelShortConv, ceil(channels, threads), n, threads, out.at, out.stride, in.at, in.stride, w.at, w.format, v.at, v.format,
			st.at, st.stride, spans, uint64(kernel), uint64(act), uint64(channels))
	})
}

// each checks a required vector of n numbers.
func (b *Backend) each(op, name string, t tensor.Tensor, n int) vector {
	if t.IsZero() {
		b.fail("%s: there are no %s", op, name)
	}
	return b.dense(op, name, t, n, n)
}

// DeltaRule starts a thread for each column of a head's state, for each sequence.
func (b *Backend) DeltaRule(dst tensor.Tensor, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) {
	const op = "delta rule"
	if b.err != nil {
		return
	}
	if a.KeyHeads < 1 || a.ValueHeads < 1 || a.ValueHeads%a.KeyHeads != 0 || a.KeyDim < 1 || a.ValueDim < 1 {
		b.fail("%s: invalid arguments: %+v", op, a)
		return
	}
	most := a.Strength
	if most == 0 {
		most = 1
	}
	rows, keys, values := dst.Rows(), a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	out, q, k, v := b.matrix(op, "result", dst, rows, values), b.matrix(op, "queries", in.Q, rows, keys), b.matrix(op, "keys", in.K, rows, keys), b.matrix(op, "values", in.V, rows, values)
	decay, strength := b.matrix(op, "decay", in.A, rows, a.Decays()), b.matrix(op, "strength", in.B, rows, a.ValueHeads)
	aLog, dtBias := b.each(op, "logarithms of the decay", in.ALog, a.ValueHeads), b.each(op, "bias of the decay", in.DTBias, a.Decays())
	st := b.states(op, s, rows, values*a.KeyDim)
	columns, bytes := b.columns(op, a.KeyDim, 3)
	parts := ceil(a.ValueDim, max(columns, 1))
	b.eachSpans(&st, func(n int, spans uint64) {
		b.launchShared(kernelDeltaRule, a.ValueHeads*parts, n, columnThreads, bytes, out.at, out.stride, q.at, q.stride, k.at, k.stride, v.at, v.stride,
			decay.at, decay.stride, strength.at, strength.stride, aLog.at, aLog.format, dtBias.at, dtBias.format, st.at, st.stride, spans,
			uint64(a.KeyHeads), uint64(a.ValueHeads), uint64(a.KeyDim), uint64(a.ValueDim), flag(a.Rates), flag(a.Tiled),
			flag(a.ByChannel), word(a.Floor), word(most), uint64(columns), uint64(parts), uint64(b.options.Lanes))
	})
}

// StateSpace starts a thread for each column of a head's state, for each sequence.
func (b *Backend) StateSpace(dst tensor.Tensor, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) {
	const op = "state space"
	if b.err != nil {
		return
	}
	if a.Groups < 1 || a.Heads < 1 || a.Heads%a.Groups != 0 || a.HeadDim < 1 || a.StateDim < 1 || !(a.StepMin <= a.StepMax) {
		b.fail("%s: invalid arguments: %+v", op, a)
		return
	}
	rows, inner, groups := dst.Rows(), a.Heads*a.HeadDim, a.Groups*a.StateDim
	out, x, dt := b.matrix(op, "result", dst, rows, inner), b.matrix(op, "operand", in.X, rows, inner), b.matrix(op, "steps", in.DT, rows, a.Heads)
	ins, outs := b.matrix(op, "input weights", in.B, rows, groups), b.matrix(op, "output weights", in.C, rows, groups)
	aLog, dtBias, d := b.each(op, "logarithms of the decay", in.ALog, a.Heads), b.each(op, "bias of the steps", in.DTBias, a.Heads), b.each(op, "shares of the operand", in.D, a.Heads)
	st := b.states(op, s, rows, inner*a.StateDim)
	columns, bytes := b.columns(op, a.StateDim, 2)
	parts := ceil(a.HeadDim, max(columns, 1))
	b.eachSpans(&st, func(n int, spans uint64) {
		b.launchShared(kernelStateSpace, a.Heads*parts, n, columnThreads, bytes, out.at, out.stride, x.at, x.stride, ins.at, ins.stride, outs.at, outs.stride, dt.at, dt.stride,
			aLog.at, aLog.format, dtBias.at, dtBias.format, d.at, d.format, st.at, st.stride, spans,
			uint64(a.Heads), uint64(a.Groups), uint64(a.HeadDim), uint64(a.StateDim), word(a.StepMin), word(a.StepMax), flag(a.Rates),
			uint64(columns), uint64(parts))
	})
}

// SelectiveScan starts a thread for each channel, for each sequence.
func (b *Backend) SelectiveScan(dst tensor.Tensor, in backend.SelectiveInputs, s backend.States, a backend.SelectiveArgs) {
	const op = "selective scan"
	if b.err != nil {
		return
	}
	if a.Channels < 1 || a.StateDim < 1 {
		b.fail("%s: invalid arguments: %+v", op, a)
		return
	}
	rows, elements := dst.Rows(), a.Channels*a.StateDim
	out, x, dt := b.matrix(op, "result", dst, rows, a.Channels), b.matrix(op, "operand", in.X, rows, a.Channels), b.matrix(op, "steps", in.DT, rows, a.Channels)
	ins, outs := b.matrix(op, "input weights", in.B, rows, a.StateDim), b.matrix(op, "output weights", in.C, rows, a.StateDim)
	aLog, d := b.each(op, "logarithms of the decay", in.ALog, elements), b.each(op, "shares of the operand", in.D, a.Channels)
	st := b.states(op, s, rows, elements)
	columns, bytes := b.columns(op, 2*(a.StateDim|1), 0) // with their rates
	b.eachSpans(&st, func(n int, spans uint64) {
		b.launchShared(kernelSelectiveScan, ceil(a.Channels, columns), n, columnThreads, bytes, out.at, out.stride, x.at, x.stride, ins.at, ins.stride, outs.at, outs.stride, dt.at, dt.stride,
			aLog.at, aLog.format, d.at, d.format, st.at, st.stride, spans, uint64(a.Channels), uint64(a.StateDim), flag(a.Rates), uint64(columns))
	})
}
