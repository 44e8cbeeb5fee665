package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// leastShare is the smallest share by which its derivative is divided. It corresponds to
// transformers' limit of 1000 for the derivative.
const leastShare = 1.0 / 2000

type gatedLRUGrad struct {
	gatedLRU
	dy, dx, dgate mat.Floats
	drate         []float32
	longest       int
}

// GatedLRUGrad distributes the channels over the threads.
func (b *Backend) GatedLRUGrad(d backend.GatedLRUInputs, dy tensor.Tensor, in backend.GatedLRUInputs, s backend.States, a backend.GatedLRUArgs) {
	if b.failed.Load() {
		return
	}
	const name = "gated unit gradient"
	op, rows := &gatedLRUGrad{longest: longest(s.Spans)}, dy.Rows()
	if !b.gatedLRU(&op.gatedLRU, rows, in, s, a) || !b.wholeSequences(name, &op.states) {
		return
	}
	var ok bool
	if op.dy, ok = b.floats(name, "result", dy, rows, a.Channels); !ok {
		return
	}
	if !b.allOptional(name, rows, wanted{&op.dx, "operand", d.X, a.Channels}, wanted{&op.dgate, "gate", d.Gate, a.Channels}) {
		return
	}
	if op.drate, _, ok = b.gradient(name, "rates of the decay", d.Rate, a.Channels); !ok || !b.reserve(replayFloats(lruChannels, op.longest)+lruChannels) {
		return
	}
	b.run(taskFunc(op.unit), ceil(a.Channels, lruChannels), 64*rows*a.Channels)
}

// unit computes the backward pass for lruChannels channels of all spans.
func (op *gatedLRUGrad) unit(w *worker, unit int) {
	begin := unit * lruChannels
	n := min(lruChannels, op.args.Channels-begin)
	rates := w.scratch.v[replayFloats(n, op.longest):][:n]
	op.rates(rates, begin)
	var drates [lruChannels]float64
	for i := range op.states.spans {
		span := &op.states.spans[i]
		states := newReplay(w.scratch.v, n, op.longest)
		states.run(span.Rows, func(state []float32, t int) {
			op.token(state, rates, span, t, begin)
		}, func(before, gradient []float32, t int) {
			op.back(before, gradient, rates, drates[:n], span.First+t, begin, t == 0)
		})
	}
	for c := range op.drate[min(begin, len(op.drate)):min(begin+n, len(op.drate))] {
		slope := float64(op.args.Power) / (1 + math.Exp(-float64(op.rate[begin+c]))) // of the rate by its parameter
		op.drate[begin+c] += float32(drates[c] * slope)
	}
}

// back turns the gradient of the states after row r into that of the states before it.
func (op *gatedLRUGrad) back(before, gradient, rates []float32, drates []float64, r, begin int, first bool) {
	n := len(rates)
	x, gate, dy := from(op.x, r, begin).V[:n], from(op.gate, r, begin).V[:n], from(op.dy, r, begin).V[:n]
	for c, rate := range rates {
		decay, share := lruStep(rate, gate[c])
		if first {
			decay, share = 0, 1
		}
		g := float64(gradient[c]) + float64(dy[c])
		if op.dx.V != nil {
			from(op.dx, r, begin).V[c] += float32(g * share)
		}
		gradient[c] = float32(g * decay)
		dlog := g * decay * (float64(before[c]) - decay*float64(x[c])/max(share, leastShare))
		drates[c] -= dlog * float64(gate[c])
		if op.dgate.V != nil {
			from(op.dgate, r, begin).V[c] -= float32(dlog * float64(rate))
		}
	}
}
