package routing_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestAnIdleModelFillsItsCacheOfExperts: the cache was empty at the first request, however long a model had been idle.
// With the routing that an earlier process kept, it is filled with the experts that were requested most.
func TestAnIdleModelFillsItsCacheOfExperts(t *testing.T) {
	dir, folder := dispatchtest.MixtureFolder(t, 77), t.TempDir()
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxBatchTokens: 32, MaxSequences: 3}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)*3/4 - need.Runtime)}}
	// misses are those of passes with tokens that are so far apart, in a model that was idle before if idle is set, and
	// that keeps its routing if keep is.
	misses := func(passes, apart int, idle, keep bool) int64 {
		o := o
		if keep {
			o.Routing, _ = dispatch.ReadRouting(dispatch.RoutingFile(folder, skeleton), skeleton) // nil before it is kept
		}
		m := dispatchtest.OpenModel(t, dir, o)
		defer m.Close()
		if keep {
			m.KeepRouting(folder, func(err error) { t.Error(err) })
		}
		if idle {
			m.Warm(t.Context())
			m.Promote(t.Context())
			dispatchtest.AwaitConversion(t, m)
		}
		before := m.Status()
		if read := before.TierReadBytes; idle != (read > 0) || before.Experts != (dispatch.ExpertCounts{}) {
			t.Errorf("idle %v: before the first pass %d bytes of the disk tier are read, and the counts are %+v", idle, read, before.Experts)
		}
		s := m.NewSequence()
		defer s.Free()
		row := dispatch.BatchRow{Sequence: s, Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}
		for i := range passes {
			row.Tokens[0] = int32(i * apart % m.Vocab())
			if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}}); err != nil {
				t.Fatal(err)
			}
		}
		return m.Status().Experts.Misses
	}
	if cold, filled := misses(8, 37, false, false), misses(8, 37, true, false); filled >= cold {
		t.Errorf("the first passes miss %d experts with a filled cache, %d with an empty one, want fewer", filled, cold)
	}
	misses(100, 0, false, true)
	if kept := misses(1, 0, true, true); kept != 0 {
		t.Errorf("the first pass misses %d experts that an earlier process requested always, want none", kept)
	}
}

// TestTokensAllocatedForExpertsThatWereNewToThem: the first token that requested an expert of the disk tier allocated
// the description of its reads, so tokens allocated for as long as their experts were new.
func TestTokensAllocatedForExpertsThatWereNewToThem(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxBatchTokens: 32, MaxSequences: 3}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)/4 - need.Runtime)}}
	m := dispatchtest.OpenModel(t, dir, o)
	defer m.Close()
	m.Warm(t.Context())
	m.Promote(t.Context())
	dispatchtest.AwaitConversion(t, m)
	s := m.NewSequence()
	defer s.Free()
	batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}}}
	token := func() {
		if _, err := m.Forward(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		token()
	}
	if n := testing.AllocsPerRun(40, func() {
		batch.Rows[0].Tokens[0] = (batch.Rows[0].Tokens[0] + 37) % int32(m.Vocab())
		token()
	}); n != 0 || m.Status().Experts.Misses == 0 {
		t.Errorf("%v allocations per token with %d misses, want 0 with some", n, m.Status().Experts.Misses)
	}
}
