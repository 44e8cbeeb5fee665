package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
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

// StateSpace distributes sequences and heads over the threads.
func (b *Backend) StateSpace(dst tensor.Tensor, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) {
	if b.failed.Load() {
		return
	}
	op, rows := &b.space, dst.Rows()
	var ok bool
	if op.dst, ok = b.floats("state space", "result", dst, rows, a.Heads*a.HeadDim); !ok || !b.stateSpace(op, rows, in, s, a) {
		return
	}
	if !b.reserve(2*a.StateDim + a.HeadDim + op.states.spare(a.HeadDim*a.StateDim)) {
		return
	}
	b.run(op, len(s.Spans)*a.Heads, 4*rows*a.Heads*a.HeadDim*a.StateDim)
}

// stateSpace checks the operands of a state space model with the given number of rows.
func (b *Backend) stateSpace(op *stateSpace, rows int, in backend.StateSpaceInputs, s backend.States, a backend.StateSpaceArgs) bool {
	const name = "state space"
	if a.Groups < 1 || a.Heads < 1 || a.Heads%a.Groups != 0 || a.HeadDim < 1 || a.StateDim < 1 || !(a.StepMin <= a.StepMax) {
		b.fail("state space: invalid arguments: %+v", a)
		return false
	}
	op.set, op.args = b.set, a
	inner, groups := a.Heads*a.HeadDim, a.Groups*a.StateDim
	if !b.allFloats(name, rows, wanted{&op.x, "operand", in.X, inner}, wanted{&op.b, "input weights", in.B, groups},
		wanted{&op.c, "output weights", in.C, groups}, wanted{&op.dt, "steps", in.DT, op.args.Heads}) {
		return false
	}
	var ok bool
	if op.aLog, ok = b.vector(name, "logarithms of the decay", in.ALog, slotWeight, op.args.Heads); !ok {
		return false
	}
	if op.dtBias, ok = b.vector(name, "bias of the steps", in.DTBias, slotBias, op.args.Heads); !ok {
		return false
	}
	if op.d, ok = b.vector(name, "share of the operand", in.D, slotSinks, op.args.Heads); !ok {
		return false
	}
	op.states, ok = b.states(name, s, rows, inner*a.StateDim)
	return ok
}

func (op *stateSpace) run(w *worker, unit int) {
	span, head := &op.states.spans[unit/op.args.Heads], unit%op.args.Heads
	size := op.args.HeadDim * op.args.StateDim
	bc, change := w.scratch.v[:2*op.args.StateDim], w.scratch.v[2*op.args.StateDim:][:op.args.HeadDim]
	state := op.states.begin(span, head*size, size, w.scratch.v[len(bc)+len(change):])
	rate := rateOf(op.aLog[head], op.args.Rates)
	for t := range span.Rows {
		r := span.First + t
		op.token(row(op.dst, r, (head+1)*op.args.HeadDim)[head*op.args.HeadDim:], state, r, head, rate, bc, change)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[head*size:][:size], state)
		}
	}
}

// token updates the state of a head, which decays at rate, with the token of row r, and sets dst
// to the token's result. It leaves B and C in bc, and in change what it adds to the state for B.
func (op *stateSpace) token(dst, state []float32, r, head int, rate float64, bc, change []float32) {
	step := op.step(r, head, rate)
	op.inputs(bc, change, r, head, step.size)
	op.set.Vector.DeltaStep(dst, state, bc, change, step.decay)
	for j, v := range row(op.x, r, (head+1)*len(dst))[head*len(dst):] {
		dst[j] += float32(op.d[head] * v)
	}
}

// inputs sets bc to B and C of row r, and change to its operand times size.
func (op *stateSpace) inputs(bc, change []float32, r, head int, size float32) {
	n := op.args.StateDim
	group := head / (op.args.Heads / op.args.Groups) * n
	copy(bc[:n], row(op.b, r, group+n)[group:])
	copy(bc[n:], row(op.c, r, group+n)[group:])
	for j, v := range row(op.x, r, (head+1)*len(change))[head*len(change):] {
		change[j] = size * v
	}
}

// spaceStep holds the step of a token and the factor of the state.
type spaceStep struct {
	at          float64 // the argument of softplus
	full        float64 // the step in float64
	size, decay float32
}

// step returns the step of row r.
func (op *stateSpace) step(r, head int, rate float64) (s spaceStep) {
	s.at = float64(row(op.dt, r, head+1)[head]) + float64(op.dtBias[head])
	s.full = min(max(softplus(s.at), float64(op.args.StepMin)), float64(op.args.StepMax))
	s.size, s.decay = float32(s.full), float32(vector.AccurateExp(-rate*s.full))
	return s
}
