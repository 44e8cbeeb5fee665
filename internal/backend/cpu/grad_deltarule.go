package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

type deltaRuleGrad struct {
	deltaRule
	dy             mat.Floats
	dq, dk, dv     mat.Floats
	da, db         mat.Floats
	daLog, ddtBias []float64 // of each span and head
	longest        int
}

// DeltaRuleGrad distributes sequences and value heads over the threads.
func (b *Backend) DeltaRuleGrad(d backend.DeltaInputs, dy tensor.Tensor, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) {
	if b.failed.Load() {
		return
	}
	const name = "delta rule gradient"
	rows, keys, values := dy.Rows(), a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	op := &deltaRuleGrad{longest: longest(s.Spans)}
	if !b.deltaRule(&op.deltaRule, rows, in, s, a) || !b.wholeSequences(name, &op.states) {
		return
	}
	var ok bool
	if op.dy, ok = b.floats(name, "result", dy, rows, values); !ok {
		return
	}
	if !b.allOptional(name, rows, wanted{&op.dq, "queries", d.Q, keys}, wanted{&op.dk, "keys", d.K, keys}, wanted{&op.dv, "values", d.V, values},
		wanted{&op.da, "decay", d.A, a.Decays()}, wanted{&op.db, "strength", d.B, a.ValueHeads}) {
		return
	}
	daLog, _, ok1 := b.gradient(name, "logarithms of the decay", d.ALog, a.ValueHeads)
	ddtBias, _, ok2 := b.gradient(name, "bias of the decay", d.DTBias, a.Decays())
	if !ok1 || !ok2 || !b.reserve(op.floats()) {
		return
	}
	op.daLog, op.ddtBias = make([]float64, len(s.Spans)*a.ValueHeads), make([]float64, len(s.Spans)*a.Decays())
	b.byHeads(headsGrad{spans: len(s.Spans), heads: a.ValueHeads, rows: rows, steps: 24 * rows * a.KeyDim * a.ValueDim, width: 2 * a.KeyDim,
		unit: op.unit, add: op.add})
	perHead(daLog, op.daLog)
	perHead(ddtBias, op.ddtBias)
}

// longest returns the number of rows in the longest span.
func longest(spans []backend.StateSpan) (n int) {
	for _, s := range spans {
		n = max(n, s.Rows)
	}
	return n
}

// floats returns the length of the scratch memory of a unit.
func (op *deltaRuleGrad) floats() int {
	k, v := op.args.KeyDim, op.args.ValueDim
	n := replayFloats(k*v, op.longest) + replayEvery(op.longest)*(2*k+2*v+2) + 2*k + 5*v
	if op.args.ByChannel {
		n += k * v
	}
	return n
}

// deltaTokens holds what a unit keeps of the tokens after a checkpoint, and its memory for one
// token.
type deltaTokens struct {
	every        int
	kq, by       []float32 // of each token: key and query, and what they were multiplied by
	seen, change []float32 // of each token: what the state had for the key, and what was added to it
	turned       []float32 // a query and its key
	vectors      []float32 // see grad.Kernels.DeltaGrad
	out, du      []float32
	decayed      []float32 // with ByChannel: a state after its decay
}

func (op *deltaRuleGrad) tokens(scratch []float32) deltaTokens {
	k, v := op.args.KeyDim, op.args.ValueDim
	from, n := cutter(scratch), replayEvery(op.longest)
	kept := deltaTokens{every: n, kq: from.take(n * 2 * k), by: from.take(2 * n), seen: from.take(n * v), change: from.take(n * v),
		turned: from.take(2 * k), vectors: from.take(3 * v), out: from.take(v), du: from.take(v)}
	if op.args.ByChannel {
		kept.decayed = from.take(k * v)
	}
	return kept
}

func (op *deltaRuleGrad) unit(w *worker, span, head int, shared mat.Floats) {
	k, v := op.args.KeyDim, op.args.ValueDim
	first := op.states.spans[span].First
	states := newReplay(w.scratch.v, k*v, op.longest)
	kept := op.tokens(w.scratch.v[replayFloats(k*v, op.longest):])
	states.run(op.states.spans[span].Rows, func(state []float32, t int) {
		i, r := t%kept.every, first+t
		kq, seen, change := kept.kq[i*2*k:][:2*k], kept.seen[i*v:][:v], kept.change[i*v:][:v]
		kept.by[2*i], kept.by[2*i+1] = op.units(kq, r, head)
		decay, strength := op.gates(r, head)
		if op.args.ByChannel {
			op.decayRows(state, r, head)
		}
		op.set.Vector.DeltaRead(seen, state, kq[:k])
		op.change(change, seen, r, head, decay, strength)
		op.set.Vector.DeltaStep(kept.out, state, kq, change, decay)
	}, func(before, gradient []float32, t int) {
		op.back(&kept, before, gradient, row(shared, first+t, 2*k), span, head, t)
	})
}

// back turns the gradient of the state after token t into that of the state before it. dkq
// becomes the gradients of its key and query.
func (op *deltaRuleGrad) back(kept *deltaTokens, before, gradient, dkq []float32, span, head, t int) {
	k, v := op.args.KeyDim, op.args.ValueDim
	i, r := t%kept.every, op.states.spans[span].First+t
	kq, seen, change := kept.kq[i*2*k:][:2*k], kept.seen[i*v:][:v], kept.change[i*v:][:v]
	decay, strength := op.gates(r, head)
	dy := from(op.dy, r, head*v).V[:v]
	copy(kept.turned, kq[k:])
	copy(kept.turned[k:], kq[:k])
	op.set.Vector.DeltaStep(kept.du, gradient, kept.turned, dy, 1) // gradient += q dyᵀ, du = gradientᵀ k
	dr := kept.vectors[2*v:]
	copy(kept.vectors, dy)
	copy(kept.vectors[v:], change)
	value, dstrength, ddecay := from(op.v, r, head*v).V[:v], 0.0, 0.0
	for j, d := range kept.du {
		dstrength += float64(d) * float64(value[j]-float32(decay*seen[j]))
		dr[j] = -strength * d
		ddecay += float64(dr[j]) * float64(seen[j])
	}
	if op.dv.V != nil {
		op.set.Vector.AddScaled(from(op.dv, r, head*v).V[:v], dr, -1)
	}
	own, earlier := float32(dot(change, dy)), before
	if op.args.ByChannel {
		copy(kept.decayed, before)
		op.decayRows(kept.decayed, r, head)
		before = kept.decayed
	}
	ddecay += op.set.Grad.DeltaGrad(dkq, before, gradient, kq[:k], kept.vectors, decay)
	op.set.Vector.AddScaled(dkq[k:], kq[:k], own)
	unitGrad(dkq[:k], kq[:k], kept.by[2*i], 1)
	unitGrad(dkq[k:], kq[k:], kept.by[2*i+1], float64(k))
	if op.args.ByChannel {
		op.stateDecayGrad(earlier, gradient, span, r, head)
	} else {
		op.decayGrad(span, r, head, head, float64(decay)*ddecay)
	}
	if op.db.V != nil {
		from(op.db, r, head).V[0] += float32(dstrength * float64(op.strengthSlope(strength)))
	}
}

// stateDecayGrad is the backward operation of decayRows: it turns the gradient of a decayed state
// into that of the state before.
func (op *deltaRuleGrad) stateDecayGrad(before, gradient []float32, span, r, head int) {
	dim, width := op.args.KeyDim, op.args.ValueDim
	for i := range dim {
		g := gradient[i*width:][:width]
		op.set.Vector.ScaleShift(g, op.decay(r, head, head*dim+i), 0)
		op.decayGrad(span, r, head, head*dim+i, dot(g, before[i*width:][:width]))
	}
}

// unitGrad turns the gradient of y, which deltaRule.unit returned, into that of its operand. by
// is the factor of the operand, and inverse 1/scale².
func unitGrad(d, y []float32, by float32, inverse float64) {
	along := float32(dot(d, y) * inverse)
	for i, v := range y {
		d[i] = by * (d[i] - float32(along*v))
	}
}

// strengthSlope returns the derivative of a strength by the operand of its sigmoid.
func (op *deltaRuleGrad) strengthSlope(strength float32) float32 {
	if most := op.args.Strength; most != 0 {
		return strength * (1 - strength/most)
	}
	return strength * (1 - strength)
}

// decayGrad adds the gradients of the operands of decay i of a head at a row, given the gradient
// of the decay's logarithm.
func (op *deltaRuleGrad) decayGrad(span, r, head, i int, dlog float64) {
	at := float64(row(op.a, r, i+1)[i]) + float64(op.dtBias[i])
	rate := rateOf(op.aLog[head], op.args.Rates)
	drate, da := -dlog*softplus(at), -rate*dlog/(1+math.Exp(-at))
	if floor := float64(op.args.Floor); floor != 0 {
		s := 1 / (1 + math.Exp(-rate*at))
		by := dlog * floor * s * (1 - s)
		drate, da = by*at, by*rate
	}
	op.daLog[span*op.args.ValueHeads+head] += drate * rateSlope(rate, op.args.Rates)
	op.ddtBias[span*op.args.Decays()+i] += da
	if op.da.V != nil {
		row(op.da, r, i+1)[i] += float32(da)
	}
}

// add adds the gradients of a key and a query.
func (op *deltaRuleGrad) add(r, head int, dkq []float32) {
	k := op.args.KeyDim
	key := op.args.KeyHead(head) * k
	if op.dk.V != nil {
		op.set.Vector.AddScaled(from(op.dk, r, key).V[:k], dkq, 1)
	}
	if op.dq.V != nil {
		op.set.Vector.AddScaled(from(op.dq, r, key).V[:k], dkq[k:], 1)
	}
}
