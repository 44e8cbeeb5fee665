package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

type wkvGrad struct {
	wkv
	dy, dk, dv     mat.Floats
	ddecay, dfirst []float32
	longest        int
}

// WKVGrad distributes the channels over the threads.
func (b *Backend) WKVGrad(d backend.WKVInputs, dy tensor.Tensor, in backend.WKVInputs, s backend.States, a backend.WKVArgs) {
	if b.failed.Load() {
		return
	}
	const name = "keyed average gradient"
	op, rows := &wkvGrad{longest: longest(s.Spans)}, dy.Rows()
	if !b.wkvOperands(&op.wkv, rows, in, s, a) || !b.wholeSequences(name, &op.states) {
		return
	}
	var ok bool
	if op.dy, ok = b.floats(name, "result", dy, rows, a.Channels); !ok {
		return
	}
	if !b.allOptional(name, rows, wanted{&op.dk, "keys", d.K, a.Channels}, wanted{&op.dv, "values", d.V, a.Channels}) {
		return
	}
	if op.ddecay, _, ok = b.gradient(name, "decays", d.Decay, a.Channels); !ok {
		return
	}
	if op.dfirst, _, ok = b.gradient(name, "what is added to a token's own key", d.First, a.Channels); !ok || !b.reserve(replayFloats(backend.WKVState*wkvChannels, op.longest)+wkvChannels) {
		return
	}
	b.run(taskFunc(op.unit), ceil(a.Channels, wkvChannels), 256*rows*a.Channels)
}

// unit computes the backward pass for wkvChannels channels of all spans.
func (op *wkvGrad) unit(w *worker, unit int) {
	begin := unit * wkvChannels
	n := min(wkvChannels, op.args.Channels-begin)
	size := backend.WKVState * n
	decays := w.scratch.v[replayFloats(size, op.longest):][:n]
	op.decays(decays, begin)
	var ddecays, dfirsts [wkvChannels]float64
	for i := range op.states.spans {
		span := &op.states.spans[i]
		states := newReplay(w.scratch.v, size, op.longest)
		states.run(span.Rows, func(state []float32, t int) {
			k, v := from(op.k, span.First+t, begin).V[:n], from(op.v, span.First+t, begin).V[:n]
			for c, decay := range decays {
				wkvStep((*[backend.WKVState]float32)(state[backend.WKVState*c:]), float64(decay), float64(k[c]), float64(v[c]))
			}
		}, func(before, gradient []float32, t int) {
			for c, decay := range decays {
				at := backend.WKVState * c
				op.back((*[backend.WKVState]float32)(before[at:]), gradient[at:at+2], float64(decay), span.First+t, begin+c, &ddecays[c], &dfirsts[c])
			}
		})
	}
	for c, decay := range decays {
		if op.ddecay != nil {
			op.ddecay[begin+c] += float32(ddecays[c] * float64(decay)) // the slope of -exp(decay) by decay is itself
		}
		if op.dfirst != nil {
			op.dfirst[begin+c] += float32(dfirsts[c])
		}
	}
}

// back turns the gradient of a channel's state after row r into that of the state before it.
// Gradients are those of the two sums divided by the exponential of the state's third number;
// results do not depend on that number otherwise.
func (op *wkvGrad) back(before *[backend.WKVState]float32, gradient []float32, decay float64, r, c int, ddecay, dfirst *float64) {
	key, value, dy := float64(from(op.k, r, c).V[0]), float64(from(op.v, r, c).V[0]), float64(from(op.dy, r, c).V[0])
	now := wkvNow(before, key+float64(op.first[c]), value)
	dsum := dy / now.sum
	old, own, _ := wkvShares(before, float64(before[2])+decay, key)
	da, db := float64(gradient[0]), float64(gradient[1])
	*ddecay += old * (da*float64(before[0]) + db*float64(before[1]))
	dfirstKey := dsum * now.own * (value - now.y)
	*dfirst += dfirstKey
	if op.dk.V != nil {
		from(op.dk, r, c).V[0] += float32(dfirstKey + own*(da*value+db))
	}
	if op.dv.V != nil {
		from(op.dv, r, c).V[0] += float32(dsum*now.own + own*da)
	}
	gradient[0] = float32(old*da + now.old*dsum)
	gradient[1] = float32(old*db - now.old*dsum*now.y)
}
