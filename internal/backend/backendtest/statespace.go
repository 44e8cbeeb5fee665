package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// testStateSpace compares with the recurrence in float64, and all divisions into passes with each
// other.
func testStateSpace(e *env) {
	r := recurrent(e)
	for _, a := range []backend.StateSpaceArgs{
		{Heads: 1, Groups: 1, HeadDim: 5, StateDim: 3, StepMax: float32(math.Inf(1))},
		{Heads: 4, Groups: 2, HeadDim: 17, StateDim: 16, StepMin: 0.3, StepMax: 1.5},
		{Heads: 3, Groups: 3, HeadDim: 64, StateDim: 7, StepMax: 2},
		{Heads: 2, Groups: 1, HeadDim: 8, StateDim: 4, StepMax: 2, Rates: true},
	} {
		const rows, first = 15, 3
		inner, groups := a.Heads*a.HeadDim, a.Groups*a.StateDim
		x, b, c, dt := e.values(rows*inner), e.values(rows*groups), e.values(rows*groups), e.values(rows*a.Heads)
		aLog, bias, d := e.rates(a.Heads, a.Rates), e.values(a.Heads), e.values(a.Heads)
		want := refStateSpace(a, rows, [4][]float32{x, b, c, dt}, [3][]float32{aLog, bias, d})
		size := first + inner*a.StateDim
		var whole, state []float32
		for _, division := range passes {
			memory := e.floats(e.values(5*size), 5, size)
			got := make([]float32, rows*inner)
			last := runPasses(division, func(at []int, spans []backend.StateSpan) {
				part := func(x []float32, cols int) tensor.Tensor { return e.strided(pick(x, cols, at), len(at), cols, 2) }
				dst := e.empty(len(at), inner)
				r.StateSpace(dst, backend.StateSpaceInputs{X: part(x, inner), B: part(b, groups), C: part(c, groups), DT: part(dt, a.Heads),
					ALog: e.floats(aLog, a.Heads), DTBias: e.floats(bias, a.Heads), D: e.floats(d, a.Heads)},
					backend.States{Memory: memory, First: first, Spans: spans}, a)
				scatter(got, inner, at, e.read(dst))
			})
			states := e.read(memory)
			kept := append(states[int(last[0])*size+first:][:size-first:size-first], states[4*size+first:][:size-first]...)
			if whole == nil {
				whole, state = got, kept
				close64(e, name("state space", a), got, want, 1e-5, 1)
			}
			sameBits(e, name("state space", a, division), got, whole)
			sameBits(e, name("states", a, division), kept, state)
		}
	}
}

// refStateSpace computes the recurrence as package backend defines it, in float64. in are x, b, c
// and dt. heads are the vectors with a number for each head.
func refStateSpace(a backend.StateSpaceArgs, rows int, in [4][]float32, heads [3][]float32) []float64 {
	inner, groups := a.Heads*a.HeadDim, a.Groups*a.StateDim
	want := make([]float64, rows*inner)
	for h := range a.Heads {
		state := make([]float64, a.StateDim*a.HeadDim)
		for t := range rows {
			if t == 9 {
				clear(state)
			}
			step := math.Log1p(math.Exp(float64(in[3][t*a.Heads+h]) + float64(heads[1][h])))
			step = min(max(step, float64(a.StepMin)), float64(a.StepMax))
			decay := math.Exp(-refRate(heads[0][h], a.Rates) * step)
			group := t*groups + h/(a.Heads/a.Groups)*a.StateDim
			for j := range a.HeadDim {
				x := float64(in[0][t*inner+h*a.HeadDim+j])
				sum := float64(heads[2][h]) * x
				for i := range a.StateDim {
					s := &state[i*a.HeadDim+j]
					*s = decay**s + float64(in[1][group+i])*step*x
					sum += float64(in[2][group+i]) * *s
				}
				want[t*inner+h*a.HeadDim+j] = sum
			}
		}
	}
	return want
}
