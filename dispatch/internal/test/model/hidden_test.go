package model_test

import (
	"context"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// states runs tokens in chunks and returns the states that the last row asked for; sums continue from
// chunk to chunk.
func states(t *testing.T, m *dispatch.Model, tokens []int32, chunk int, mode dispatch.HiddenMode) []float32 {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	var state []float32
	for at := 0; at < len(tokens); at += chunk {
		row := dispatch.BatchRow{Sequence: s, Tokens: tokens[at:min(at+chunk, len(tokens))], PromptLen: len(tokens), Hidden: mode}
		if mode == dispatch.HiddenSum {
			row.Sum = state
		}
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}})
		if err != nil {
			t.Fatal(err)
		}
		if n, values := out.Row(0); n != 0 || len(values) != 0 {
			t.Fatalf("got %d rows of logits, want none", n)
		}
		state = slices.Clone(out.Hidden(0))
	}
	return state
}

// TestHiddenStatesInChunks: hidden states and their sums are the same, bit by bit, however
// a prompt is cut, and each alone or in a batch with others.
func TestHiddenStatesInChunks(t *testing.T) {
	m := dispatchtest.Windowed(t, 0, 6)(dispatch.Options{KVTokens: 512})
	tokens := make([]int32, 37)
	for i := range tokens {
		tokens[i] = int32(11 * i % 90)
	}
	sum := make([]float32, 0)
	for n := range tokens {
		last := states(t, m, tokens[:n+1], n+1, dispatch.HiddenLast)
		if sum = append(sum, make([]float32, len(last)-len(sum))...); n == 0 {
			if first := states(t, m, tokens, len(tokens), dispatch.HiddenFirst); !slices.Equal(first, last) {
				t.Errorf("first state %v, want %v", first, last)
			}
		}
		for k, v := range last {
			sum[k] += v
		}
	}
	last := states(t, m, tokens, len(tokens), dispatch.HiddenLast)
	for _, chunk := range []int{1, 5, 16, 37} {
		if got := states(t, m, tokens, chunk, dispatch.HiddenSum); dispatchtest.FirstDifference(got, sum) >= 0 {
			t.Errorf("chunks of %d: sum %v, want %v", chunk, got, sum)
		}
		if got := states(t, m, tokens, chunk, dispatch.HiddenLast); dispatchtest.FirstDifference(got, last) >= 0 {
			t.Errorf("chunks of %d: last state %v, want %v", chunk, got, last)
		}
	}
	a, b, c := m.NewSequence(), m.NewSequence(), m.NewSequence()
	out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
		{Sequence: a, Tokens: tokens[:3], Hidden: dispatch.HiddenSum}, {Sequence: b, Tokens: tokens[4:9], Logits: dispatch.LogitsLast},
		{Sequence: c, Tokens: tokens, PromptLen: len(tokens), Hidden: dispatch.HiddenLast}}})
	if err != nil {
		t.Fatal(err)
	}
	if out.Hidden(1) != nil || dispatchtest.FirstDifference(out.Hidden(2), last) >= 0 || len(out.Hidden(0)) != len(last) {
		t.Error("rows beside others have other states")
	}
	row := dispatch.BatchRow{Sequence: b, Tokens: tokens[:1], Hidden: dispatch.HiddenSum, Sum: make([]float32, 3)}
	if _, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}}); err == nil {
		t.Error("a sum of three values was gone on from")
	}
}

// TestHiddenStatesOfALongPass: with Options.HiddenStates a pass returns the states of all its tokens, those that it returns
// one by one. Without, a pass of so many is an error.
func TestHiddenStatesOfALongPass(t *testing.T) {
	tokens := make([]int32, 100)
	for i := range tokens {
		tokens[i] = int32(7 * i % 90)
	}
	m := dispatchtest.Windowed(t, 0, 6)(dispatch.Options{KVTokens: 512, HiddenStates: true, Precision: dispatch.PrecisionHigh})
	if n := m.BatchLimits().States; n < len(tokens) {
		t.Fatalf("the limit is %d states", n)
	}
	var want []float32
	one := m.NewSequence()
	defer one.Free()
	for i := range tokens {
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: one, Tokens: tokens[i : i+1], PromptLen: 1, Hidden: dispatch.HiddenLast}}})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, out.Hidden(0)...)
	}
	if got := states(t, m, tokens, len(tokens), dispatch.HiddenAll); dispatchtest.FirstDifference(got, want) >= 0 {
		t.Errorf("states differ from %d on", dispatchtest.FirstDifference(got, want))
	}
	m = dispatchtest.Windowed(t, 0, 6)(dispatch.Options{KVTokens: 512})
	if n := m.BatchLimits().States; n >= len(tokens) {
		t.Fatalf("the limit without HiddenStates is %d states", n)
	}
	s := m.NewSequence()
	defer s.Free()
	if _, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: tokens, Hidden: dispatch.HiddenAll}}}); err == nil {
		t.Error("no error beyond the limit")
	}
}
