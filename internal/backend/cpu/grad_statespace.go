package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

type stateSpaceGrad struct {
	stateSpace
	dy                 mat.Floats
	dx, db, dc, ddt    mat.Floats
	daLog, ddtBias, dd []float64 // of each span and head
	longest            int
}

// StateSpaceGrad distributes sequences and heads over the threads.
func (b *Backend) StateSpaceGrad(d backend.StateSpaceInputs, dy tensor.Tensor, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) {
	if b.failed.Load() {
		return
	}
	const name = "state space gradient"
	op, rows := &stateSpaceGrad{longest: longest(s.Spans)}, dy.Rows()
	if !b.stateSpace(&op.stateSpace, rows, in, s, a) || !b.wholeSequences(name, &op.states) {
		return
	}
	inner, groups := a.Heads*a.HeadDim, a.Groups*a.StateDim
	var ok bool
	if op.dy, ok = b.floats(name, "result", dy, rows, inner); !ok {
		return
	}
	if !b.allOptional(name, rows, wanted{&op.dx, "operand", d.X, inner}, wanted{&op.db, "input weights", d.B, groups},
		wanted{&op.dc, "output weights", d.C, groups}, wanted{&op.ddt, "steps", d.DT, a.Heads}) {
		return
	}
	daLog, _, ok1 := b.gradient(name, "logarithms of the decay", d.ALog, a.Heads)
	ddtBias, _, ok2 := b.gradient(name, "bias of the steps", d.DTBias, a.Heads)
	dd, _, ok3 := b.gradient(name, "share of the operand", d.D, a.Heads)
	if !ok1 || !ok2 || !ok3 || !b.reserve(op.floats()) {
		return
	}
	n := len(s.Spans) * a.Heads
	op.daLog, op.ddtBias, op.dd = make([]float64, n), make([]float64, n), make([]float64, n)
	b.byHeads(headsGrad{spans: len(s.Spans), heads: a.Heads, rows: rows, steps: 20 * rows * a.HeadDim * a.StateDim, width: 2 * a.StateDim,
		unit: op.unit, add: op.add})
	perHead(daLog, op.daLog)
	perHead(ddtBias, op.ddtBias)
	perHead(dd, op.dd)
}

// floats returns the length of the scratch memory of a unit.
func (op *stateSpaceGrad) floats() int {
	n, dim := op.args.StateDim, op.args.HeadDim
	return replayFloats(n*dim, op.longest) + 4*n + 6*dim
}

// spaceTokens is the memory of a token of a unit.
type spaceTokens struct {
	bc, turned      []float32 // B and C, and C and B
	change, out, du []float32
	vectors         []float32 // see grad.Kernels.DeltaGrad; the last is zeros
}

func (op *stateSpaceGrad) unit(w *worker, span, head int, shared mat.Floats) {
	n, dim := op.args.StateDim, op.args.HeadDim
	states := newReplay(w.scratch.v, n*dim, op.longest)
	scratch := cutter(w.scratch.v[replayFloats(n*dim, op.longest):])
	m := spaceTokens{bc: scratch.take(2 * n), turned: scratch.take(2 * n), change: scratch.take(dim), out: scratch.take(dim), du: scratch.take(dim), vectors: scratch.take(3 * dim)}
	clear(m.vectors[2*dim:])
	first, rate := op.states.spans[span].First, rateOf(op.aLog[head], op.args.Rates)
	states.run(op.states.spans[span].Rows, func(state []float32, t int) {
		step := op.step(first+t, head, rate)
		op.inputs(m.bc, m.change, first+t, head, step.size)
		op.set.Vector.DeltaStep(m.out, state, m.bc, m.change, step.decay)
	}, func(before, gradient []float32, t int) {
		op.back(&m, before, gradient, row(shared, first+t, 2*n), span, first+t, head)
	})
}

// back turns the gradient of the state after row r into that of the state before it. dbc becomes
// the gradients of its B and C.
func (op *stateSpaceGrad) back(m *spaceTokens, before, gradient, dbc []float32, span, r, head int) {
	n, dim := op.args.StateDim, op.args.HeadDim
	rate := rateOf(op.aLog[head], op.args.Rates)
	step := op.step(r, head, rate)
	op.inputs(m.bc, m.change, r, head, step.size)
	dy, x := from(op.dy, r, head*dim).V[:dim], from(op.x, r, head*dim).V[:dim]
	copy(m.turned, m.bc[n:])
	copy(m.turned[n:], m.bc[:n])
	op.set.Vector.DeltaStep(m.du, gradient, m.turned, dy, 1) // gradient += C dyᵀ, du = gradientᵀ B
	copy(m.vectors, dy)
	copy(m.vectors[dim:], m.change)
	own := float32(dot(m.change, dy))
	ddecay := op.set.Grad.DeltaGrad(dbc, before, gradient, m.bc[:n], m.vectors, step.decay)
	op.set.Vector.AddScaled(dbc[n:], m.bc[:n], own)
	if op.dx.V != nil {
		dx := from(op.dx, r, head*dim).V[:dim]
		op.set.Vector.AddScaled(dx, m.du, step.size)
		op.set.Vector.AddScaled(dx, dy, op.d[head])
	}
	i, dlog := span*op.args.Heads+head, ddecay*float64(step.decay)
	op.dd[i] += dot(dy, x)
	op.daLog[i] -= dlog * rateSlope(rate, op.args.Rates) * step.full
	if soft := softplus(step.at); soft < float64(op.args.StepMin) || soft > float64(op.args.StepMax) {
		return // the step does not depend on its operand
	}
	ddt := (dot(m.du, x) - rate*dlog) / (1 + math.Exp(-step.at))
	op.ddtBias[i] += ddt
	if op.ddt.V != nil {
		from(op.ddt, r, head).V[0] += float32(ddt)
	}
}

// add adds the gradients of B and C.
func (op *stateSpaceGrad) add(r, head int, dbc []float32) {
	n := op.args.StateDim
	group := head / (op.args.Heads / op.args.Groups) * n
	if op.db.V != nil {
		op.set.Vector.AddScaled(from(op.db, r, group).V[:n], dbc, 1)
	}
	if op.dc.V != nil {
		op.set.Vector.AddScaled(from(op.dc, r, group).V[:n], dbc[n:], 1)
	}
}
