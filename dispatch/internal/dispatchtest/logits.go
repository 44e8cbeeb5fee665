package dispatchtest

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// Greedy returns the greedy continuation of prompt by n tokens, and the logits of every step.
func Greedy(t *testing.T, m *dispatch.Model, prompt []int32, n int) (ids []int32, logits []float32) {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	next := prompt
	for range n {
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: next, PromptLen: len(prompt), Logits: dispatch.LogitsLast}}})
		if err != nil {
			t.Fatal(err)
		}
		_, row := out.Row(0)
		logits = append(logits, row...)
		best := 0
		for i := range row {
			if row[i] > row[best] {
				best = i
			}
		}
		ids = append(ids, int32(best))
		next = ids[len(ids)-1:]
	}
	return ids, logits
}

// Close ends the test if a logit of got differs from that of want by more than tolerance. what
// names the logits.
func Close(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d logits, want %d", what, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) <= tolerance) {
			t.Fatalf("%s: logit %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// These tolerances bound the difference between logits with PrecisionAuto and with PrecisionHigh:
// the root mean square, as a share of the range of the logits. In a MoE model a rounding may
// select another expert for a token, which changes the logits of later tokens too. There the
// median over the tokens counts, otherwise all tokens.
const (
	AutoTolerance    = 1e-2
	MixtureTolerance = 5e-2
)

// ForcedLogits returns the logits of every position of ids. The first prompt tokens run in
// chunks, the others one by one.
func ForcedLogits(t *testing.T, m *dispatch.Model, ids []int32, prompt, chunk int) [][]float32 {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	var out [][]float32
	for len(ids) > s.Len() {
		n := 1
		if s.Len() < prompt {
			n = min(chunk, prompt-s.Len())
		}
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:n], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Rows(got, 0)...)
	}
	return out
}

// Rows returns a copy of the logits of batch row i.
func Rows(l *dispatch.Logits, i int) (out [][]float32) {
	count, values := l.Row(i)
	for r := range count {
		out = append(out, slices.Clone(values[r*l.Vocab():][:l.Vocab()]))
	}
	return out
}

// SameLogits fails the test if got and want differ in any bit.
func SameLogits(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: logits of %d tokens, want %d", what, len(got), len(want))
	}
	for i := range got {
		if at := FirstDifference(got[i], want[i]); at >= 0 {
			t.Fatalf("%s: token %d: logit %d is %v, alone and whole it is %v", what, i, at, got[i][at], want[i][at])
		}
	}
}

// RoundingTolerance returns the maximum difference between precision auto and high.
func RoundingTolerance(skeleton *meta.Model) float64 {
	for _, param := range skeleton.Root.AllParams() {
		if len(param.Shape) == 3 {
			return MixtureTolerance
		}
	}
	return AutoTolerance
}

// CloseLogits fails the test if logits of got differ from those of want by more than tolerance,
// which is AutoTolerance or MixtureTolerance.
func CloseLogits(t *testing.T, variant string, got, want [][]float32, tolerance float64) {
	t.Helper()
	var low, high, sum float64
	squares := make([]float64, len(want)) // mean square of each token
	for i := range want {
		low, high = min(low, float64(slices.Min(want[i]))), max(high, float64(slices.Max(want[i])))
		for j := range want[i] {
			d := float64(got[i][j]) - float64(want[i][j])
			squares[i] += d * d / float64(len(want[i]))
		}
		sum += squares[i]
	}
	off := sum / float64(len(squares))
	if tolerance == MixtureTolerance {
		slices.Sort(squares)
		off = squares[len(squares)/2]
	}
	if d := math.Sqrt(off) / (high - low); !(d <= tolerance) {
		t.Errorf("%s: with rounding logits are off by %.2g of their range, tolerated is %g", variant, d, tolerance)
	}
}

// Mixed runs the prompt together with the generated tokens of two other sequences.
func Mixed(t *testing.T, variant string, m *dispatch.Model, ids []int32, prompt int, want [][]float32) {
	t.Helper()
	var rows []dispatch.BatchRow
	forward := func() *dispatch.Logits {
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 2 {
		s := m.NewSequence()
		defer s.Free()
		rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: ids[:prompt], PromptLen: prompt})
	}
	forward()
	last := m.NewSequence()
	defer last.Free()
	rows = slices.Insert(rows, 1, dispatch.BatchRow{Sequence: last, Tokens: ids[:prompt], PromptLen: prompt, Logits: dispatch.LogitsAll})
	for _, i := range []int{0, 2} { // generated tokens before and after a prompt, two of them drafted
		rows[i].Tokens, rows[i].Logits = ids[prompt:][:min(2, len(ids)-prompt)], dispatch.LogitsAll
	}
	out := forward()
	SameLogits(t, variant+" prompt in a mixed batch", Rows(out, 1), want[:prompt])
	for _, i := range []int{0, 2} {
		SameLogits(t, variant+" generated in a mixed batch", Rows(out, i), want[prompt:][:len(rows[i].Tokens)])
	}
}

// FirstDifference returns the index of the first number that differs, or -1.
func FirstDifference(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}
