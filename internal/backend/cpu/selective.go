package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Scans = (*Backend)(nil)

type selectiveScan struct {
	set        *kernels.Set
	dst, x, dt mat.Floats
	b, c       mat.Floats
	aLog, d    []float32
	states     states
	args       backend.SelectiveArgs
}

// scanChannels is the number of channels of a unit.
const scanChannels = 64

// SelectiveScan distributes sequences and channels over the threads.
func (b *Backend) SelectiveScan(dst tensor.Tensor, in backend.SelectiveInputs, s backend.States, a backend.SelectiveArgs) {
	if b.failed.Load() {
		return
	}
	op, rows := &b.scan, dst.Rows()
	var ok bool
	if op.dst, ok = b.floats("selective scan", "result", dst, rows, a.Channels); !ok || !b.selectiveScan(op, rows, in, s, a) {
		return
	}
	if unit := scanChannels * a.StateDim; !b.reserve(unit + op.states.spare(unit)) {
		return
	}
	b.run(op, len(s.Spans)*ceil(a.Channels, scanChannels), 8*rows*a.Channels*a.StateDim)
}

// selectiveScan checks the operands of a scan with the given number of rows.
func (b *Backend) selectiveScan(op *selectiveScan, rows int, in backend.SelectiveInputs, s backend.States, a backend.SelectiveArgs) (ok bool) {
	const name = "selective scan"
	elements := a.Channels * a.StateDim
	if a.Channels < 1 || a.StateDim < 1 {
		b.fail("%s: invalid arguments: %+v", name, a)
		return false
	}
	op.set, op.args = b.set, a
	if !b.allFloats(name, rows, wanted{&op.x, "operand", in.X, a.Channels}, wanted{&op.dt, "steps", in.DT, a.Channels},
		wanted{&op.b, "input weights", in.B, a.StateDim}, wanted{&op.c, "output weights", in.C, a.StateDim}) {
		return false
	}
	if op.aLog, ok = b.vector(name, "logarithms of the decay", in.ALog, slotWeight, elements); !ok {
		return false
	}
	if op.d, ok = b.vector(name, "share of the operand", in.D, slotSinks, a.Channels); !ok {
		return false
	}
	op.states, ok = b.states(name, s, rows, elements)
	return ok
}

func (op *selectiveScan) run(w *worker, unit int) {
	parts, n := ceil(op.args.Channels, scanChannels), op.args.StateDim
	span, begin := &op.states.spans[unit/parts], unit%parts*scanChannels
	end := min(begin+scanChannels, op.args.Channels)
	size := (end - begin) * n
	rates := w.scratch.v[:size]
	op.rates(rates, begin)
	state := op.states.begin(span, begin*n, size, w.scratch.v[size:])
	for t := range span.Rows {
		op.token(state, rates, span.First+t, begin, end)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[begin*n:][:size], state)
		}
	}
}

// rates sets dst to the factors of the logarithms of decays, from channel begin on.
func (op *selectiveScan) rates(dst []float32, begin int) {
	for i, a := range op.aLog[begin*op.args.StateDim:][:len(dst)] {
		dst[i] = float32(rateOf(a, op.args.Rates))
	}
}

// token updates the states of channels [begin, end) with the token of row r and computes their
// results.
func (op *selectiveScan) token(state, rates []float32, r, begin, end int) {
	n := op.args.StateDim
	in, out := row(op.b, r, n), row(op.c, r, n)
	x, dt, dst := row(op.x, r, end), row(op.dt, r, end), row(op.dst, r, end)
	for c := begin; c < end; c++ {
		step := softplus(float64(dt[c]))
		change, sum := float32(step)*x[c], float32(0)
		own, rate := state[(c-begin)*n:][:n], rates[(c-begin)*n:][:n]
		for i := range own {
			decay := float32(vector.AccurateExp(-float64(rate[i]) * step))
			own[i] = float32(own[i]*decay) + float32(change*in[i])
			sum += float32(own[i] * out[i])
		}
		dst[c] = sum + float32(op.d[c]*x[c])
	}
}

// advance is token without a result.
func (op *selectiveScan) advance(state, rates []float32, r, begin, end int) {
	n := op.args.StateDim
	in, x, dt := row(op.b, r, n), row(op.x, r, end), row(op.dt, r, end)
	for c := begin; c < end; c++ {
		step := softplus(float64(dt[c]))
		change := float32(step) * x[c]
		own, rate := state[(c-begin)*n:][:n], rates[(c-begin)*n:][:n]
		for i := range own {
			decay := float32(vector.AccurateExp(-float64(rate[i]) * step))
			own[i] = float32(own[i]*decay) + float32(change*in[i])
		}
	}
}
