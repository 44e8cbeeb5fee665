package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

type selectiveGrad struct {
	selectiveScan
	dy        mat.Floats
	dx, ddt   mat.Floats
	db, dc    mat.Floats
	daLog, dd []float64 // of each span: [Channels, StateDim], and of each span and channel
	longest   int
}

// SelectiveScanGrad distributes sequences and channels over the threads.
func (b *Backend) SelectiveScanGrad(d backend.SelectiveInputs, dy tensor.Tensor, in backend.SelectiveInputs, s backend.States, a backend.SelectiveArgs) {
	if b.failed.Load() {
		return
	}
	const name = "selective scan gradient"
	op, rows := &selectiveGrad{longest: longest(s.Spans)}, dy.Rows()
	if !b.selectiveScan(&op.selectiveScan, rows, in, s, a) || !b.wholeSequences(name, &op.states) {
		return
	}
	var ok bool
	if op.dy, ok = b.floats(name, "result", dy, rows, a.Channels); !ok {
		return
	}
	if !b.allOptional(name, rows, wanted{&op.dx, "operand", d.X, a.Channels}, wanted{&op.ddt, "steps", d.DT, a.Channels},
		wanted{&op.db, "input weights", d.B, a.StateDim}, wanted{&op.dc, "output weights", d.C, a.StateDim}) {
		return
	}
	elements := a.Channels * a.StateDim
	daLog, _, ok1 := b.gradient(name, "logarithms of the decay", d.ALog, elements)
	dd, _, ok2 := b.gradient(name, "share of the operand", d.D, a.Channels)
	parts, size := ceil(a.Channels, scanChannels), scanChannels*a.StateDim
	if !ok1 || !ok2 || !b.reserve(replayFloats(size, op.longest)+size) {
		return
	}
	op.daLog, op.dd = make([]float64, len(s.Spans)*elements), make([]float64, len(s.Spans)*a.Channels)
	b.byHeads(headsGrad{spans: len(s.Spans), heads: parts, rows: rows, steps: 64 * rows * size, width: 2 * a.StateDim,
		unit: op.unit, add: op.add})
	perHead(daLog, op.daLog)
	perHead(dd, op.dd)
}

// unit computes the backward pass for scanChannels channels of a span.
func (op *selectiveGrad) unit(w *worker, span, part int, shared mat.Floats) {
	n := op.args.StateDim
	begin := part * scanChannels
	end := min(begin+scanChannels, op.args.Channels)
	size, first := (end-begin)*n, op.states.spans[span].First
	states := newReplay(w.scratch.v, size, op.longest)
	rates := w.scratch.v[replayFloats(size, op.longest):][:size]
	op.rates(rates, begin)
	states.run(op.states.spans[span].Rows, func(state []float32, t int) {
		op.advance(state, rates, first+t, begin, end)
	}, func(before, gradient []float32, t int) {
		dbc := row(shared, first+t, 2*n)
		clear(dbc)
		for c := begin; c < end; c++ {
			at := (c - begin) * n
			op.back(before[at:][:n], gradient[at:][:n], rates[at:][:n], dbc, span, first+t, c)
		}
	})
}

// back turns the gradient of the state of channel c after row r into that of the state before it,
// and adds to dbc, the gradients of the row's B and C.
func (op *selectiveGrad) back(before, gradient, rates, dbc []float32, span, r, c int) {
	n := op.args.StateDim
	in, out := row(op.b, r, n), row(op.c, r, n)
	x, dy, raw := row(op.x, r, c+1)[c], row(op.dy, r, c+1)[c], float64(row(op.dt, r, c+1)[c])
	step := softplus(raw)
	change := float32(step) * x
	dchange, dstep := 0.0, 0.0
	daLog := op.daLog[(span*op.args.Channels+c)*n:][:n]
	for i, rate := range rates {
		decay := float32(vector.AccurateExp(-float64(rate) * step))
		g := gradient[i] + float32(dy*out[i])
		after := float32(before[i]*decay) + float32(change*in[i])
		dbc[i] += float32(g * change)
		dbc[n+i] += float32(dy * after)
		dchange += float64(g) * float64(in[i])
		gradient[i] = g * decay
		dlog := float64(gradient[i]) * float64(before[i]) // of the decay's logarithm
		dstep -= dlog * float64(rate)
		daLog[i] -= dlog * rateSlope(float64(rate), op.args.Rates) * step
	}
	dstep += dchange * float64(x)
	op.dd[span*op.args.Channels+c] += float64(dy) * float64(x)
	if op.dx.V != nil {
		row(op.dx, r, c+1)[c] += float32(dchange*float64(float32(step)) + float64(dy)*float64(op.d[c]))
	}
	if op.ddt.V != nil {
		row(op.ddt, r, c+1)[c] += float32(dstep / (1 + math.Exp(-raw)))
	}
}

// add adds the gradients of B and C.
func (op *selectiveGrad) add(r, _ int, dbc []float32) {
	n := op.args.StateDim
	if op.db.V != nil {
		op.set.Vector.AddScaled(row(op.db, r, n), dbc[:n], 1)
	}
	if op.dc.V != nil {
		op.set.Vector.AddScaled(row(op.dc, r, n), dbc[n:], 1)
	}
}
