package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.GatedUnits = (*Backend)(nil)

type gatedLRU struct {
	dst, x, gate mat.Floats
	rate         []float32
	states       states
	args         backend.GatedLRUArgs
}

// lruChannels is the number of channels of a unit.
const lruChannels = 64

// GatedLRU distributes sequences and channels over the threads.
func (b *Backend) GatedLRU(dst tensor.Tensor, in backend.GatedLRUInputs, s backend.States, a backend.GatedLRUArgs) {
	if b.failed.Load() {
		return
	}
	op, rows := &b.lru, dst.Rows()
	var ok bool
	if op.dst, ok = b.floats("gated unit", "result", dst, rows, a.Channels); !ok || !b.gatedLRU(op, rows, in, s, a) || !b.reserve(2*lruChannels) {
		return
	}
	b.run(op, len(s.Spans)*ceil(a.Channels, lruChannels), 16*rows*a.Channels)
}

// gatedLRU checks the operands of a gated linear recurrent unit with the given number of rows.
func (b *Backend) gatedLRU(op *gatedLRU, rows int, in backend.GatedLRUInputs, s backend.States, a backend.GatedLRUArgs) (ok bool) {
	const name = "gated unit"
	if a.Channels < 1 || !(a.Power > 0) {
		b.fail("%s: invalid arguments: %+v", name, a)
		return false
	}
	op.args = a
	if !b.allFloats(name, rows, wanted{&op.x, "operand", in.X, a.Channels}, wanted{&op.gate, "gate", in.Gate, a.Channels}) {
		return false
	}
	if op.rate, ok = b.vector(name, "rates of the decay", in.Rate, slotWeight, a.Channels); !ok {
		return false
	}
	op.states, ok = b.states(name, s, rows, a.Channels)
	return ok
}

func (op *gatedLRU) run(w *worker, unit int) {
	parts := ceil(op.args.Channels, lruChannels)
	span, begin := &op.states.spans[unit/parts], unit%parts*lruChannels
	n := min(lruChannels, op.args.Channels-begin)
	rates := w.scratch.v[:n]
	op.rates(rates, begin)
	state := op.states.begin(span, begin, n, w.scratch.v[n:])
	for t := range span.Rows {
		op.token(state, rates, span, t, begin)
		copy(from(op.dst, span.First+t, begin).V[:n], state)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[begin:][:n], state)
		}
	}
}

// rates sets dst to the factors by which gates of channels from begin on are multiplied.
func (op *gatedLRU) rates(dst []float32, begin int) {
	for i, rate := range op.rate[begin:][:len(dst)] {
		dst[i] = float32(float64(op.args.Power) * softplus(float64(rate)))
	}
}

// token advances the states of channels from begin on by token t of a span.
func (op *gatedLRU) token(state, rates []float32, span *backend.StateSpan, t, begin int) {
	x, gate := from(op.x, span.First+t, begin).V[:len(state)], from(op.gate, span.First+t, begin).V[:len(state)]
	if span.From < 0 && t == 0 {
		copy(state, x)
		return
	}
	for c, rate := range rates {
		decay, share := lruStep(rate, gate[c])
		state[c] = float32(state[c]*float32(decay)) + float32(x[c]*float32(share))
	}
}

// lruStep returns the factors of a state and of the operand of a token.
func lruStep(rate, gate float32) (decay, share float64) {
	decay = vector.AccurateExp(-float64(rate) * float64(gate))
	return decay, math.Sqrt(1 - decay*decay)
}
