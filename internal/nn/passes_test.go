package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

// TestWindowsOfTwoKinds: layers that see a window and layers that see all have page
// tables of their own, and pages that a chunk frees change nothing.
func TestWindowsOfTwoKinds(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, func(b *meta.Builder, i int) {
		separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer, s.Window = i, 5*i })
		gated(b, "mlp")
	})
	tokens := make([]int32, 70)
	for i := range tokens {
		tokens[i] = int32(5 * i % 31)
	}
	m := newMachine(t, root, newRandom(root), Limits{Rows: 70, Outputs: 70}, 12)
	whole := m.cache.NewSequence(0)
	want := m.prompt(t, whole, tokens, len(tokens))
	whole.Free()
	for _, chunk := range []int{1, 3, 20} {
		m := newMachine(t, root, newRandom(root), Limits{Rows: 70, Outputs: 70}, 8) // 5 of one kind
		seq := m.cache.NewSequence(0)
		sameBits(t, fmt.Sprintf("chunks of %d", chunk), m.prompt(t, seq, tokens, chunk), want)
		if used := m.cache.Stats().Used; used > 5+2 {
			t.Errorf("chunks of %d: %d pages are held", chunk, used)
		}
	}
}

// TestSumsOfRows compares sums with the rows that they are of.
func TestSumsOfRows(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, plainBlock)
	m := newMachine(t, root, newRandom(root), Limits{Rows: 8, Outputs: 12}, 8)
	seq := m.cache.NewSequence(0)
	if err := seq.Reserve(6, 6); err != nil {
		t.Fatal(err)
	}
	m.run(t, &Input{
		Tokens: []int32{1, 2, 3, 4, 5, 6}, KV: m.cache.Layers(), Normed: []int32{0, 1, 2, 3, 4, 5},
		Groups: groups(m.cache, []*kvcache.Sequence{seq}, []backend.Span{{Rows: 6}}),
		Sums: []Sum{{RowRange: meta.RowRange{Begin: 1, End: 5}}, {RowRange: meta.RowRange{Begin: 5, End: 6}},
			{RowRange: meta.RowRange{Begin: 0, End: 2}, From: slices.Repeat([]float32{3}, testWidth)}},
	})
	normed, sums := m.context.Normed(), m.context.Sums()
	for k := range testWidth {
		want := normed.Row(1)[k] + normed.Row(2)[k] + normed.Row(3)[k] + normed.Row(4)[k]
		if got := sums.Row(0)[k]; got != want {
			t.Errorf("channel %d: %v, want %v", k, got, want)
		}
		want = 3 + normed.Row(0)[k] + normed.Row(1)[k]
		if got := sums.Row(2)[k]; got != want {
			t.Errorf("channel %d of a sum that goes on: %v, want %v", k, got, want)
		}
	}
	sameBits(t, "sum of one row", sums.Row(1), normed.Row(5))
}
