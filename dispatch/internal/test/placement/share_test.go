package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestASharedModelAnswersTheSame: the share changes at random within passes, while weights come back. Logits keep their
// bits. The smallest share holds no copies of weights but what a pass needs; without a share they come back, also after a limit
// that fell and rose below it.
func TestASharedModelAnswersTheSame(t *testing.T) {
	dispatchtest.LimitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		want := dispatchtest.ForcedLogits(t, m, ids, 20, 20)
		dispatchtest.LoadAll(t, m)
		most, copied := dispatchtest.UsedBytes(m), dispatchtest.Copied(m)
		r := rand.New(rand.NewPCG(9, 9))
		hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error {
			if n := r.Int64N(most + most/4); m.SetMemoryShare(n) < n {
				t.Errorf("a share of %d bytes became less", n)
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			dispatchtest.SameLogits(t, "the share walks within passes", dispatchtest.ForcedLogits(t, m, ids, 20, 7), want)
		}
		hook.Remove()
		least := m.SetMemoryShare(1)
		if least <= 1 || least > most-copied/2 {
			t.Errorf("the smallest share is %d of %d bytes, with copies of %d", least, most, copied)
		}
		if got := dispatchtest.Copied(m); got > copied/2 {
			t.Errorf("with the smallest share, %d of %d bytes are copied", got, copied)
		}
		m.SetMemoryLimit(1)
		m.SetMemoryLimit(2 * most)
		if got := dispatchtest.Copied(m); got > copied/2 {
			t.Errorf("a limit that rises ends the share: %d of %d bytes are copied", got, copied)
		}
		dispatchtest.SameLogits(t, "the smallest share", dispatchtest.ForcedLogits(t, m, ids, 20, 7), want)
		m.SetMemoryShare(0)
		for pass := 0; dispatchtest.Copied(m) < copied*9/10; pass++ {
			if pass == 100 {
				t.Fatalf("without a share %d of %d bytes came back", dispatchtest.Copied(m), copied)
			}
			dispatchtest.ForcedLogits(t, m, ids, 20, 7)
			dispatchtest.LoadAll(t, m)
		}
		dispatchtest.SameLogits(t, "without a share", dispatchtest.ForcedLogits(t, m, ids, 20, 7), want)
	})
}
