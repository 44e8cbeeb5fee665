package nn

import (
	"math"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestRopeClass: lengths share a class exactly where frequencies are the same.
func TestRopeClass(t *testing.T) {
	factors := []float64{1, 2, 3}
	for _, r := range []*meta.RopeSpec{
		{Theta: 100, Dim: 6, Max: 16},
		{Type: meta.RopeLinear, Theta: 100, Dim: 6, Max: 16, Factor: 2},
		{Type: meta.RopeDynamic, Theta: 100, Dim: 6, Max: 16, Factor: 2},
		{Type: meta.RopeYarn, Theta: 100, Dim: 6, Max: 16, Original: 8, Factor: 2, BetaFast: 32, BetaSlow: 1},
		{Type: meta.RopeLlama3, Theta: 100, Dim: 6, Max: 16, Original: 8, Factor: 2, LowFreq: 1, HighFreq: 4},
		{Type: meta.RopeLongRope, Theta: 100, Dim: 6, Max: 16, Original: 8, Factor: 2, ShortFactor: factors, LongFactor: []float64{2, 3, 4}},
	} {
		for a := 1; a < 40; a++ {
			for b := 1; b < 40; b++ {
				fa, _ := r.Frequencies(a)
				fb, _ := r.Frequencies(b)
				same := true
				for i := range fa {
					same = same && fa[i] == fb[i]
				}
				if same != (ropeClass(r, a) == ropeClass(r, b)) {
					t.Fatalf("type %d, lengths %d and %d: same frequencies is %v", r.Type, a, b, same)
				}
			}
		}
		if ropeClass(r, 1) != 0 {
			t.Errorf("type %d: length 1 has class %d", r.Type, ropeClass(r, 1))
		}
	}
}

// TestRopeTableFollowsEachRowsLength runs more classes than are remembered.
func TestRopeTableFollowsEachRowsLength(t *testing.T) {
	r := &meta.RopeSpec{Type: meta.RopeDynamic, Theta: 100, Dim: 6, Max: 4, Factor: 2}
	root := decoder(t, meta.CausalLMSpec{}, func(b *meta.Builder, i int) {
		separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer, s.Rope = i, r })
		gated(b, "mlp")
	})
	m := newMachine(t, root, newRandom(root), Limits{Rows: 48, Outputs: 1}, 4)
	if len(m.context.ropes) != 1 {
		t.Fatalf("%d tables for one rope", len(m.context.ropes))
	}
	if m.program.RopeClass(3) != 0 || m.program.RopeClass(5) == m.program.RopeClass(6) {
		t.Error("classes of the program are not those of its rope")
	}
	tokens := make([]int32, 48)
	seq := m.cache.NewSequence(0)
	m.pass(t, nil, work{seq: seq, tokens: tokens})
	table := &m.context.ropes[0]
	for i := range tokens {
		inv, scale := r.Frequencies(i + 1)
		for j, f := range inv {
			angle := float64(float32(i) * f)
			if c, s := table.cos.Row(i)[j], table.sin.Row(i)[j]; float64(c) != float64(float32(math.Cos(angle)))*scale || float64(s) != float64(float32(math.Sin(angle)))*scale {
				t.Fatalf("row %d, pair %d: %v, %v for angle %v", i, j, c, s, angle)
			}
		}
	}
	m.lengths = nil
	if err := m.context.Begin(&Input{Tokens: m.tokens, Groups: m.groups, KV: m.cache.Layers()}); err == nil {
		t.Error("no error without lengths")
	}
}
