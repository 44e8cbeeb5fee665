package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// TestSelectiveScan compares Mamba's recurrence with the formula in float64, whole and in passes, of more channels
// than a unit has.
func TestSelectiveScan(t *testing.T) {
	b := opened(t, 2)
	const rows, channels, n = 9, scanChannels + 7, 5
	r := rand.New(rand.NewPCG(5, 6))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	x, dt, in, out := random(rows*channels), random(rows*channels), random(rows*n), random(rows*n)
	aLog, d, got := random(channels*n), random(channels), make([]float32, rows*channels)
	memory := tensor.Floats(make([]float32, 2*channels*n), 2, channels*n)
	run := func(begin, end int) {
		cut := func(x []float32, cols int) tensor.Tensor {
			return tensor.Floats(x[begin*cols:end*cols], end-begin, cols)
		}
		span := backend.StateSpan{Rows: end - begin, SaveAfter: 1, Save: 1}
		if begin == 0 {
			span.From = -1
		}
		b.SelectiveScan(cut(got, channels), backend.SelectiveInputs{X: cut(x, channels), DT: cut(dt, channels), B: cut(in, n), C: cut(out, n),
			ALog: tensor.Floats(aLog, len(aLog)), D: tensor.Floats(d, len(d))},
			backend.States{Memory: memory, Spans: []backend.StateSpan{span}}, backend.SelectiveArgs{Channels: channels, StateDim: n})
	}
	run(0, rows)
	whole := slices.Clone(got)
	for c := range channels {
		want := wantScan(n, rows, float64(d[c]), aLog[c*n:][:n], in, out, func(t int) (step, value float32) { return dt[t*channels+c], x[t*channels+c] })
		for token, y := range want {
			if got := float64(whole[token*channels+c]); !(math.Abs(got-y) <= 1e-5*(1+math.Abs(y))) {
				t.Fatalf("token %d, channel %d: got %v, want %v", token, c, got, y)
			}
		}
	}
	for _, cut := range []int{1, 5} {
		clear(got)
		run(0, cut)
		saved := slices.Clone(memory.F32()[channels*n:])
		run(cut, rows)
		if !slices.Equal(got, whole) {
			t.Errorf("two passes, the second from token %d on, differ from one", cut)
		}
		if cut == 1 && slices.Equal(saved, memory.F32()[channels*n:]) {
			t.Error("the state after the first token of the second pass was not saved")
		}
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
}

// wantScan is the recurrence of one channel in float64. at returns what softplus makes a step of, and the operand, of a token.
func wantScan(n, rows int, share float64, aLog, in, out []float32, at func(t int) (step, value float32)) []float64 {
	state, want := make([]float64, n), make([]float64, rows)
	for t := range rows {
		raw, x := at(t)
		step, value := math.Log1p(math.Exp(float64(raw))), float64(x)
		want[t] = share * value
		for i := range state {
			state[i] = math.Exp(-math.Exp(float64(aLog[i]))*step)*state[i] + step*value*float64(in[t*n+i])
			want[t] += state[i] * float64(out[t*n+i])
		}
	}
	return want
}

// TestGradientOfAVectorsPartStaysInIt: what later sequences add to the gradient of a part of a vector went to the elements
// behind the part.
func TestGradientOfAVectorsPartStaysInIt(t *testing.T) {
	b := opened(t, 2)
	const rows, channels, n = 2, 3, 2
	ones := func(cols int) tensor.Tensor {
		return tensor.Floats(slices.Repeat([]float32{1}, rows*cols), rows, cols)
	}
	memory := make([]float32, 3*channels)
	in := backend.SelectiveInputs{X: ones(channels), B: ones(n), C: ones(n), DT: ones(channels), ALog: tensor.Floats(make([]float32, channels*n), channels*n), D: tensor.Floats(make([]float32, channels), channels)}
	sequences := backend.States{Spans: []backend.StateSpan{{Rows: 1, From: -1, To: -1}, {First: 1, Rows: 1, From: -1, To: -1}}}
	b.SelectiveScanGrad(backend.SelectiveInputs{D: tensor.Floats(memory, len(memory)).Slice(channels, 2*channels)}, ones(channels), in, sequences, backend.SelectiveArgs{Channels: channels, StateDim: n})
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	if want := []float32{0, 0, 0, 2, 2, 2, 0, 0, 0}; !slices.Equal(memory, want) {
		t.Errorf("got %v, want %v", memory, want)
	}
}
