// Package dispatchtest helps tests of package dispatch, in all their packages, to place and run models and to compare what
// they answer.
package dispatchtest

import (
	"context"
	"math"
	"testing"

	"github.com/heftai/heft/dispatch"
)

// Greedy is the greedy continuation of prompt by n tokens, and the logits of every step, one after the other.
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

// Close ends the test if a logit of got is further than tolerance from that of want; what names the logits.
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
