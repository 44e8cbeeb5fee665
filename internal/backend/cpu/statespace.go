package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

type stateSpace struct {
	set             *kernels.Set
	dst, x          mat.Floats
	b, c, dt        mat.Floats
	aLog, dtBias, d []float32
	states          states
	args            backend.StateSpaceArgs
}

// StateSpace shares sequences and heads among the threads.
func (b *Backend) StateSpace(dst tensor.Tensor, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) {
	if b.failed.Load() {
		return
	}
	if a.Groups < 1 || a.Heads < 1 || a.Heads%a.Groups != 0 || a.HeadDim < 1 || a.StateDim < 1 || !(a.StepMin <= a.StepMax) {
		b.fail("state space: invalid arguments: %+v", a)
		return
	}
	op := &b.space
	op.set, op.args = b.set, a
	rows := dst.Rows()
	if !b.stateSpaceInputs(op, dst, in) {
		return
	}
	var ok bool
	if op.states, ok = b.states("state space", s, rows, a.Heads*a.HeadDim*a.StateDim); !ok || !b.reserve(2*a.StateDim+a.HeadDim) {
		return
	}
	b.run(op, len(s.Spans)*a.Heads, 4*rows*a.Heads*a.HeadDim*a.StateDim)
}

// stateSpaceInputs checks the operands of op.
func (b *Backend) stateSpaceInputs(op *stateSpace, dst tensor.Tensor, in backend.StateSpaceInputs) bool {
	const name = "state space"
	rows, inner, groups := dst.Rows(), op.args.Heads*op.args.HeadDim, op.args.Groups*op.args.StateDim
	for _, x := range [...]struct {
		to   *mat.Floats
		what string
		from tensor.Tensor
		cols int
	}{{&op.dst, "result", dst, inner}, {&op.x, "operand", in.X, inner}, {&op.b, "input weights", in.B, groups},
		{&op.c, "output weights", in.C, groups}, {&op.dt, "steps", in.DT, op.args.Heads}} {
		var ok bool
		if *x.to, ok = b.floats(name, x.what, x.from, rows, x.cols); !ok {
			return false
		}
	}
	var ok bool
	if op.aLog, ok = b.vector(name, "logarithms of the decay", in.ALog, slotWeight, op.args.Heads); !ok {
		return false
	}
	if op.dtBias, ok = b.vector(name, "bias of the steps", in.DTBias, slotBias, op.args.Heads); !ok {
		return false
	}
	op.d, ok = b.vector(name, "share of the operand", in.D, slotSinks, op.args.Heads)
	return ok
}

func (op *stateSpace) run(w *worker, unit int) {
	span, head := &op.states.spans[unit/op.args.Heads], unit%op.args.Heads
	size := op.args.HeadDim * op.args.StateDim
	state := op.states.slot(span.To)[head*size:][:size]
	switch {
	case span.From < 0:
		clear(state)
	case span.From != span.To:
		copy(state, op.states.slot(span.From)[head*size:][:size])
	}
	rate := math.Exp(float64(op.aLog[head]))
	for t := range span.Rows {
		op.token(state, span.First+t, head, rate, w.scratch.v)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[head*size:][:size], state)
		}
	}
}

// token advances the state of a head, which decays at rate, by the token of row r.
func (op *stateSpace) token(state []float32, r, head int, rate float64, scratch []float32) {
	dim, n := op.args.HeadDim, op.args.StateDim
	group := head / (op.args.Heads / op.args.Groups) * n
	bc, change := scratch[:2*n], scratch[2*n:2*n+dim]
	copy(bc[:n], row(op.b, r, group+n)[group:])
	copy(bc[n:], row(op.c, r, group+n)[group:])
	step := softplus(float64(row(op.dt, r, head+1)[head]) + float64(op.dtBias[head]))
	step = min(max(step, float64(op.args.StepMin)), float64(op.args.StepMax))
	x, dst := row(op.x, r, (head+1)*dim)[head*dim:], row(op.dst, r, (head+1)*dim)[head*dim:]
	for j, v := range x {
		change[j] = float32(step) * v
	}
	op.set.Vector.DeltaStep(dst, state, bc, change, float32(math.Exp(-rate*step)))
	for j, v := range x {
		dst[j] += float32(op.d[head] * v)
	}
}
