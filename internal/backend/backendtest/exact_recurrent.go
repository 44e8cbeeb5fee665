package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// exactRecurrent runs the recurrent operations: with states, for two sequences in several passes,
// and without a state, for one sequence.
func exactRecurrent(e *env, out map[string][]float32) {
	if _, ok := e.Backend.(backend.Recurrent); !ok {
		return
	}
	exactConvs(e, out)
	for _, rates := range []bool{false, true} {
		for _, a := range []backend.DeltaArgs{{}, {Strength: 2}, {ByChannel: true}, {ByChannel: true, Floor: -5, Strength: 1}, {Floor: -5}} {
			a.KeyHeads, a.ValueHeads, a.KeyDim, a.ValueDim, a.Rates, a.Tiled = 2, 4, 37, 50, rates, rates
			exactDelta(e, out, a)
		}
		a := backend.StateSpaceArgs{Heads: 4, Groups: 2, HeadDim: 50, StateDim: 37, StepMax: float32(math.Inf(1)), Rates: rates}
		if rates {
			a.StepMin, a.StepMax = 0.3, 1.5
		}
		exactSpace(e, out, a)
		exactScan(e, out, backend.SelectiveArgs{Channels: 75, StateDim: 16, Rates: rates})
	}
	// With states this large, a block has fewer columns than threads.
	exactDelta(e, out, backend.DeltaArgs{KeyHeads: 1, ValueHeads: 1, KeyDim: 700, ValueDim: 40, ByChannel: true})
	exactSpace(e, out, backend.StateSpaceArgs{Heads: 1, Groups: 1, HeadDim: 40, StateDim: 700, StepMax: float32(math.Inf(1))})
	exactScan(e, out, backend.SelectiveArgs{Channels: 40, StateDim: 301})
}

// eachPass calls run for each pass of [passes], with states of the given number of elements. It
// records results and states in out.
func eachPass(e *env, out map[string][]float32, what string, width, elements int, run func(dst tensor.Tensor, part func(x []float32, cols int) tensor.Tensor, s backend.States)) {
	const first = 5
	part := func(at []int) func(x []float32, cols int) tensor.Tensor {
		return func(x []float32, cols int) tensor.Tensor { return e.strided(pick(x, cols, at), len(at), cols, 3) }
	}
	for i, division := range passes {
		memory := e.floats(e.values(5*(first+elements)), 5, first+elements)
		var got []float32
		runPasses(division, func(at []int, spans []backend.StateSpan) {
			dst := e.empty(len(at), width)
			run(dst, part(at), backend.States{Memory: memory, First: first, Spans: spans})
			got = append(got, e.read(dst)...)
		})
		out[name(what, i)], out[name(what, i, "states")] = got, e.read(memory)
	}
	all, dst := make([]int, 15), e.empty(15, width)
	for i := range all {
		all[i] = i
	}
	run(dst, part(all), backend.States{Spans: []backend.StateSpan{{Rows: 9, From: -1, To: -1}, {First: 9, Rows: 6, From: -1, To: -1}}})
	out[name(what, "without states")] = e.read(dst)
}

func exactConvs(e *env, out map[string][]float32) {
	const channels = 300
	for _, act := range []meta.Activation{meta.ActNone, meta.ActSiLU} {
		for _, kernel := range []int{2, 4} {
			x, w := e.values(15*channels), e.place(meta.BFloat16, e.values(channels*kernel), 0, channels, 1, kernel)
			for _, bias := range []tensor.Tensor{{}, e.floats(e.values(channels), channels)} {
				eachPass(e, out, name("convolution", act, kernel, bias.IsZero()), channels, (kernel-1)*channels, func(dst tensor.Tensor, part func([]float32, int) tensor.Tensor, s backend.States) {
					e.Backend.(backend.Recurrent).ShortConv(dst, part(x, channels), w, bias, s, act)
				})
			}
		}
	}
}

// gates returns n numbers, some of them far from 0.
func (e *env) gates(n int) []float32 {
	list := e.values(n)
	for i := range list {
		list[i] *= []float32{1, 7, 0.01, 30}[i%4]
	}
	return list
}

func exactDelta(e *env, out map[string][]float32, a backend.DeltaArgs) {
	keys, values := a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	q, k, v := e.values(15*keys), e.values(15*keys), e.values(15*values)
	decay, strength := e.gates(15*a.Decays()), e.gates(15*a.ValueHeads)
	aLog, bias := e.floats(e.rates(a.ValueHeads, a.Rates), a.ValueHeads), e.place(meta.BFloat16, e.values(a.Decays()), 0, a.Decays())
	eachPass(e, out, name("delta rule", a), values, values*a.KeyDim, func(dst tensor.Tensor, part func([]float32, int) tensor.Tensor, s backend.States) {
		e.Backend.(backend.Recurrent).DeltaRule(dst, backend.DeltaInputs{Q: part(q, keys), K: part(k, keys), V: part(v, values), A: part(decay, a.Decays()),
			B: part(strength, a.ValueHeads), ALog: aLog, DTBias: bias}, s, a)
	})
}

func exactSpace(e *env, out map[string][]float32, a backend.StateSpaceArgs) {
	inner, groups := a.Heads*a.HeadDim, a.Groups*a.StateDim
	x, b, c, dt := e.values(15*inner), e.values(15*groups), e.values(15*groups), e.gates(15*a.Heads)
	aLog, bias, d := e.floats(e.rates(a.Heads, a.Rates), a.Heads), e.place(meta.BFloat16, e.values(a.Heads), 0, a.Heads), e.floats(e.values(a.Heads), a.Heads)
	eachPass(e, out, name("state space", a), inner, inner*a.StateDim, func(dst tensor.Tensor, part func([]float32, int) tensor.Tensor, s backend.States) {
		e.Backend.(backend.Recurrent).StateSpace(dst, backend.StateSpaceInputs{X: part(x, inner), B: part(b, groups), C: part(c, groups), DT: part(dt, a.Heads),
			ALog: aLog, DTBias: bias, D: d}, s, a)
	})
}

func exactScan(e *env, out map[string][]float32, a backend.SelectiveArgs) {
	scans, ok := e.Backend.(backend.Scans)
	if !ok {
		e.Fatal("the backend has no selective scans")
	}
	elements := a.Channels * a.StateDim
	x, b, c, dt := e.values(15*a.Channels), e.values(15*a.StateDim), e.values(15*a.StateDim), e.gates(15*a.Channels)
	aLog, d := e.floats(e.rates(elements, a.Rates), a.Channels, a.StateDim), e.place(meta.BFloat16, e.values(a.Channels), 0, a.Channels)
	eachPass(e, out, name("selective scan", a), a.Channels, elements, func(dst tensor.Tensor, part func([]float32, int) tensor.Tensor, s backend.States) {
		scans.SelectiveScan(dst, backend.SelectiveInputs{X: part(x, a.Channels), B: part(b, a.StateDim), C: part(c, a.StateDim), DT: part(dt, a.Channels), ALog: aLog, D: d}, s, a)
	})
}
