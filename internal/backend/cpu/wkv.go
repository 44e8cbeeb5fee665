package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.KeyedAverages = (*Backend)(nil)

type wkv struct {
	dst, k, v    mat.Floats
	decay, first []float32
	states       states
	args         backend.WKVArgs
}

// wkvChannels is the number of channels of a unit.
const wkvChannels = 64

// WKV distributes sequences and channels over the threads.
func (b *Backend) WKV(dst tensor.Tensor, in backend.WKVInputs, s backend.States, a backend.WKVArgs) {
	if b.failed.Load() {
		return
	}
	op, rows := &b.wkv, dst.Rows()
	if !b.wkvOperands(op, rows, in, s, a) || !b.reserve(wkvChannels+op.states.spare(backend.WKVState*wkvChannels)) {
		return
	}
	var ok bool
	if op.dst, ok = b.floats("keyed average", "result", dst, rows, a.Channels); ok {
		b.run(op, len(s.Spans)*ceil(a.Channels, wkvChannels), 64*rows*a.Channels)
	}
}

// wkvOperands checks the operands of keyed averages with the given number of rows.
func (b *Backend) wkvOperands(op *wkv, rows int, in backend.WKVInputs, s backend.States, a backend.WKVArgs) (ok bool) {
	const name = "keyed average"
	if a.Channels < 1 {
		b.fail("%s: invalid arguments: %+v", name, a)
		return false
	}
	op.args = a
	if !b.allFloats(name, rows, wanted{&op.k, "keys", in.K, a.Channels}, wanted{&op.v, "values", in.V, a.Channels}) {
		return false
	}
	if op.decay, ok = b.vector(name, "decays", in.Decay, slotWeight, a.Channels); !ok {
		return false
	}
	if op.first, ok = b.vector(name, "what is added to a token's own key", in.First, slotBias, a.Channels); !ok {
		return false
	}
	op.states, ok = b.states(name, s, rows, backend.WKVState*a.Channels)
	return ok
}

func (op *wkv) run(w *worker, unit int) {
	parts := ceil(op.args.Channels, wkvChannels)
	span, begin := &op.states.spans[unit/parts], unit%parts*wkvChannels
	n := min(wkvChannels, op.args.Channels-begin)
	decays := w.scratch.v[:n]
	op.decays(decays, begin)
	state := op.states.begin(span, backend.WKVState*begin, backend.WKVState*n, w.scratch.v[n:])
	for t := range span.Rows {
		r := span.First + t
		k, v, dst := from(op.k, r, begin).V[:n], from(op.v, r, begin).V[:n], from(op.dst, r, begin).V[:n]
		for c, decay := range decays {
			own := (*[backend.WKVState]float32)(state[backend.WKVState*c:])
			key, value := float64(k[c]), float64(v[c])
			dst[c] = float32(wkvNow(own, key+float64(op.first[begin+c]), value).y)
			wkvStep(own, float64(decay), key, value)
		}
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[backend.WKVState*begin:], state)
		}
	}
}

// decays sets dst to the logarithms of the decays of channels from begin on.
func (op *wkv) decays(dst []float32, begin int) {
	for i, d := range op.decay[begin:][:len(dst)] {
		dst[i] = float32(-vector.AccurateExp(float64(d)))
	}
}

// wkvShares returns the factors of a state with logarithm before and of a token with logarithm
// now, of which the larger is 1, and the larger logarithm. A state without tokens, whose
// denominator is 0, has factor 0.
func wkvShares(state *[backend.WKVState]float32, before, now float64) (old, own, log float64) {
	if state[1] == 0 {
		return 0, 1, now
	}
	log = max(before, now)
	return vector.AccurateExp(before - log), vector.AccurateExp(now - log), log
}

// wkvResult holds the result of a token, the factors of the state and of the token's value, and
// the divisor of their sum.
type wkvResult struct{ y, old, own, sum float64 }

func wkvNow(state *[backend.WKVState]float32, key, value float64) wkvResult {
	old, own, _ := wkvShares(state, float64(state[2]), key)
	sum := old*float64(state[1]) + own
	return wkvResult{(old*float64(state[0]) + own*value) / sum, old, own, sum}
}

// wkvStep adds a token to a state.
func wkvStep(state *[backend.WKVState]float32, decay, key, value float64) {
	old, own, log := wkvShares(state, float64(state[2])+decay, key)
	state[0], state[1], state[2] = float32(old*float64(state[0])+own*value), float32(old*float64(state[1])+own), float32(log)
}
