package backendtest

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// passes are ways to divide the tokens of two sequences into passes. A pass is the number of rows
// of the first and of the second sequence.
var passes = [][][2]int{{{9, 6}}, {{4, 6}, {5, 0}}, {{1, 1}, {1, 0}, {7, 5}}, {{3, 3}, {3, 3}, {3, 0}}}

// runPasses calls run for each pass. The rows of the first sequence precede those of the second.
// The first sequence has its states in slots 0 and 1, the second in slots 2 and 3. Slot 4 gets the
// state of the first sequence after 2 tokens. runPasses returns the slot of the last state of each
// sequence.
func runPasses(division [][2]int, run func(rows []int, spans []backend.StateSpan)) [2]int32 {
	at, last := [2]int{}, [2]int32{-1, -1}
	for _, counts := range division {
		var rows []int
		var spans []backend.StateSpan
		for s, n := range counts {
			if n == 0 {
				continue
			}
			span := backend.StateSpan{First: len(rows), Rows: n, From: last[s], To: int32(2 * s)}
			if span.From == span.To {
				span.To++
			}
			if after := 2 - at[0]; s == 0 && after > 0 && after <= n {
				span.SaveAfter, span.Save = after, 4
			}
			for i := range n {
				rows = append(rows, 9*s+at[s]+i)
			}
			at[s], last[s] = at[s]+n, span.To
			spans = append(spans, span)
		}
		run(rows, spans)
	}
	return last
}

// recurrent returns the backend's operations with states.
func recurrent(e *env) backend.Recurrent {
	r, ok := e.Backend.(backend.Recurrent)
	if !ok {
		e.Fatal("the backend has no operations with states")
	}
	return r
}

// pick returns the given rows of x, which has cols columns.
func pick(x []float32, cols int, rows []int) []float32 {
	out := make([]float32, 0, len(rows)*cols)
	for _, r := range rows {
		out = append(out, x[r*cols:(r+1)*cols]...)
	}
	return out
}

// testShortConv compares with sums in float64, and all divisions into passes with each other.
func testShortConv(e *env) {
	r := recurrent(e)
	const channels, rows, first = 300, 15, 7
	for _, kernel := range []int{2, 3, 4} {
		x, w, bias := e.values(rows*channels), e.values(channels*kernel), e.values(channels)
		for _, act := range []meta.Activation{meta.ActNone, meta.ActSiLU} {
			want := make([]float64, rows*channels)
			for i := range want {
				t, c := i/channels, i%channels
				begin := t / 9 * 9
				sum := float64(bias[c])
				for j := range kernel {
					if s := t - kernel + 1 + j; s >= begin {
						sum += float64(w[c*kernel+j]) * float64(x[s*channels+c])
					}
				}
				want[i] = refGate(sum, 1, act, 0)
			}
			var whole []float32
			for _, division := range passes {
				memory := e.floats(e.values(5*(first+(kernel-1)*channels)), 5, first+(kernel-1)*channels)
				got := make([]float32, rows*channels)
				last := runPasses(division, func(at []int, spans []backend.StateSpan) {
					dst := e.empty(len(at), channels)
					r.ShortConv(dst, e.strided(pick(x, channels, at), len(at), channels, 3), e.floats(w, channels, 1, kernel), e.floats(bias, channels),
						backend.States{Memory: memory, First: first, Spans: spans}, act)
					scatter(got, channels, at, e.read(dst))
				})
				if whole == nil {
					whole = got
					close64(e, name("convolution", kernel, act), got, want, 1e-6, 1)
				}
				sameBits(e, name("convolution", kernel, act, division), got, whole)
				states := e.read(memory)
				size := first + (kernel-1)*channels
				sameBits(e, "state", states[int(last[0])*size+first:][:size-first], x[(9-kernel+1)*channels:9*channels])
				if kernel <= 3 {
					sameBits(e, "saved state", states[4*size+first:][:size-first], x[(2-kernel+1)*channels:2*channels])
				}
			}
		}
	}
}

// scatter copies rows back to their positions in dst.
func scatter(dst []float32, cols int, rows []int, x []float32) {
	for i, r := range rows {
		copy(dst[r*cols:(r+1)*cols], x[i*cols:(i+1)*cols])
	}
}

// testDeltaRule compares with the recurrence in float64, and all divisions into passes with each
// other.
func testDeltaRule(e *env) {
	r := recurrent(e)
	for _, a := range []backend.DeltaArgs{{KeyHeads: 1, ValueHeads: 1, KeyDim: 3, ValueDim: 5}, {KeyHeads: 2, ValueHeads: 4, KeyDim: 16, ValueDim: 17},
		{KeyHeads: 3, ValueHeads: 6, KeyDim: 4, ValueDim: 8, Rates: true, Tiled: true}} {
		const rows, first = 15, 3
		keys, values := a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
		q, k, v := e.values(rows*keys), e.values(rows*keys), e.values(rows*values)
		da, db := e.values(rows*a.ValueHeads), e.values(rows*a.ValueHeads)
		aLog, bias := e.rates(a.ValueHeads, a.Rates), e.values(a.ValueHeads)
		want := refDelta(a, rows, q, k, v, da, db, aLog, bias)
		size := first + a.ValueHeads*a.KeyDim*a.ValueDim
		var whole, state []float32
		for _, division := range passes {
			memory := e.floats(e.values(5*size), 5, size)
			got := make([]float32, rows*values)
			last := runPasses(division, func(at []int, spans []backend.StateSpan) {
				part := func(x []float32, cols int) tensor.Tensor { return e.strided(pick(x, cols, at), len(at), cols, 2) }
				dst := e.empty(len(at), values)
				r.DeltaRule(dst, backend.DeltaInputs{Q: part(q, keys), K: part(k, keys), V: part(v, values), A: part(da, a.ValueHeads), B: part(db, a.ValueHeads),
					ALog: e.floats(aLog, a.ValueHeads), DTBias: e.floats(bias, a.ValueHeads)}, backend.States{Memory: memory, First: first, Spans: spans}, a)
				scatter(got, values, at, e.read(dst))
			})
			states := e.read(memory)
			kept := append(states[int(last[0])*size+first:][:size-first:size-first], states[4*size+first:][:size-first]...)
			if whole == nil {
				whole, state = got, kept
				close64(e, name("delta rule", a), got, want, 1e-5, 1)
			}
			sameBits(e, name("delta rule", a, division), got, whole)
			sameBits(e, name("states", a, division), kept, state)
		}
	}
}

// rates returns n values of A_log, or of -exp(A_log).
func (e *env) rates(n int, negated bool) []float32 {
	list := e.values(n)
	for i, x := range list {
		if negated {
			list[i] = float32(-math.Exp(float64(x)))
		}
	}
	return list
}

func refRate(aLog float32, negated bool) float64 {
	if negated {
		return -float64(aLog)
	}
	return math.Exp(float64(aLog))
}

// refDelta computes the recurrence as package backend defines it, in float64.
func refDelta(a backend.DeltaArgs, rows int, q, k, v, da, db, aLog, bias []float32) []float64 {
	keys, values := a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	want := make([]float64, rows*values)
	unit := func(x []float32) []float64 {
		sum, out := 1e-6, make([]float64, len(x))
		for _, x := range x {
			sum += float64(x) * float64(x)
		}
		for i, x := range x {
			out[i] = float64(x) / math.Sqrt(sum)
		}
		return out
	}
	for h := range a.ValueHeads {
		state := make([][]float64, a.KeyDim)
		for t := range rows {
			if t == 0 || t == 9 {
				for i := range state {
					state[i] = make([]float64, a.ValueDim)
				}
			}
			key := t*keys + h/(a.ValueHeads/a.KeyHeads)*a.KeyDim
			if a.Tiled {
				key = t*keys + h%a.KeyHeads*a.KeyDim
			}
			qt, kt := unit(q[key:key+a.KeyDim]), unit(k[key:key+a.KeyDim])
			at := t*a.ValueHeads + h
			decay := math.Exp(-refRate(aLog[h], a.Rates) * math.Log1p(math.Exp(float64(da[at])+float64(bias[h]))))
			strength := 1 / (1 + math.Exp(-float64(db[at])))
			for j := range a.ValueDim {
				seen, out := 0.0, 0.0
				for i := range state {
					state[i][j] *= decay
					seen += kt[i] * state[i][j]
				}
				change := strength * (float64(v[t*values+h*a.ValueDim+j]) - seen)
				for i := range state {
					state[i][j] += kt[i] * change
					out += qt[i] * state[i][j]
				}
				want[t*values+h*a.ValueDim+j] = out / math.Sqrt(float64(a.KeyDim))
			}
		}
	}
	return want
}

// testStateErrors: invalid spans and slots are errors, and nothing is written.
func testStateErrors(e *env) {
	r := recurrent(e)
	x, dst := e.floats(e.values(6), 3, 2), e.empty(3, 2)
	before := e.read(dst)
	for _, s := range []backend.States{
		{Memory: e.empty(2, 1), Spans: []backend.StateSpan{{Rows: 3, From: -1}}},
		{Memory: e.empty(2, 4), First: 3, Spans: []backend.StateSpan{{Rows: 3, From: -1}}},
		{Memory: e.empty(2, 4), Spans: []backend.StateSpan{{Rows: 2, From: -1}}},
		{Memory: e.empty(2, 4), Spans: []backend.StateSpan{{Rows: 3, From: 2}}},
		{Memory: e.empty(2, 4), Spans: []backend.StateSpan{{Rows: 3, From: -1, To: 2}}},
		{Memory: e.empty(2, 4), Spans: []backend.StateSpan{{Rows: 3, From: -1, SaveAfter: 4}}},
		{Memory: e.empty(2, 4), Spans: []backend.StateSpan{{First: 1, Rows: 3, From: -1}}},
	} {
		r.ShortConv(dst, x, e.floats(e.values(4), 2, 1, 2), tensor.Tensor{}, s, meta.ActNone)
		if e.Sync() == nil {
			e.Errorf("no error of %+v", s)
		}
	}
	sameBits(e, "result after errors", e.read(dst), before)
}
