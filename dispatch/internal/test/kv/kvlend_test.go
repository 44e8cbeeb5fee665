package kv_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestUnusedKVPagesAreLentToExperts: the KV cache of a plan took its memory whether requests used it or
// not. The memory that sequences do not use holds experts until they need it; the model keeps to its
// limit in between, and no bit changes.
func TestUnusedKVPagesAreLentToExperts(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 1024, MaxBatchTokens: 32, MaxSequences: 2}
	whole := dispatchtest.OpenModel(t, dir, o)
	ids := make([]int32, 900)
	for i := range ids {
		ids[i] = int32(i*37%223 + 3)
	}
	const prompt = 880
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 32)
	whole.Close()

	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	limit := need.Least - need.Runtime + (need.All-need.Least)/4
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if plan.LentBytes == 0 || plan.ExpertCacheBytes == 0 {
		t.Fatalf("the plan lends %d bytes to a cache of %d\n%s", plan.LentBytes, plan.ExpertCacheBytes, plan.Explain())
	}
	o.Ledger = new(dispatch.Ledger)
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if short, long := m.PlanWith(1, 16), m.PlanWith(1, 1000); short.ExpertHitRate <= long.ExpertHitRate || short.LentBytes <= long.LentBytes {
		t.Errorf("beside a short sequence %.3f hits with %d bytes lent are expected, beside a long one %.3f with %d",
			short.ExpertHitRate, short.LentBytes, long.ExpertHitRate, long.LentBytes)
	}
	planned := plan.Device(devicemap.CPU)
	within := func(when string) (staging, kv int64) {
		t.Helper()
		return holdsWithin(t, o.Ledger, planned, when)
	}
	lent, before := within("at the start")
	if before >= planned.KVBytes/2 {
		t.Errorf("the KV cache holds %d bytes at the start, the plan has %d", before, planned.KVBytes)
	}
	s := m.NewSequence()
	got := dispatchtest.Extend(t, m, s, ids, prompt, func() { within("while a sequence grows") })
	dispatchtest.SameLogits(t, "while memory is lent", got, want)
	staging, kv := within("with a long sequence")
	if staging >= lent || kv <= before {
		t.Errorf("staging went from %d to %d bytes, the KV cache from %d to %d; want memory taken back", lent, staging, before, kv)
	}
	s.Free()
	dispatchtest.UngrowKV(m)
	dispatchtest.SameLogits(t, "after it is lent again", dispatchtest.ForcedLogits(t, m, ids, prompt, 32), want)
	dispatchtest.UngrowKV(m)
	if again, _ := within("at the end"); again <= staging {
		t.Errorf("staging has %d bytes at the end, %d while a sequence used the KV cache", again, staging)
	}
}

// holdsWithin returns what l holds, and fails if that is more than planned for staging and KV cache.
func holdsWithin(t *testing.T, l *dispatch.Ledger, planned devicemap.DevicePlan, when string) (staging, kv int64) {
	t.Helper()
	most := planned.StagingBytes + planned.KVBytes
	most += most / 16 // slots are whole pages
	held := l.Held()
	if sum := held["staging"] + held["kv"]; sum > most {
		t.Errorf("%s: the model holds %d bytes, the limit is %d: %v", when, sum, most, held)
	}
	return held["staging"], held["kv"]
}

// TestAPlanBelowItsMinimumKeepsItsKVCache: a model whose limit is below its minimum took back as many pages as
// the limit left, not as many as the plan has: sequences that fit failed.
func TestAPlanBelowItsMinimumKeepsItsKVCache(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 1, Context: 128, MaxBatchTokens: 32, MaxSequences: 4, KVTokens: 4 * 128}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least - need.Runtime - 1)}}
	m := dispatchtest.OpenModel(t, dir, o)
	if !m.Plan().BelowLeast || m.Plan().LentBytes == 0 {
		t.Fatalf("the plan lends %d bytes, below its minimum: %v", m.Plan().LentBytes, m.Plan().BelowLeast)
	}
	for i := range 4 {
		s := m.NewSequence()
		defer s.Free()
		if err := s.Reserve(120); err != nil {
			t.Fatalf("sequence %d: %v", i, err)
		}
	}
}

// TestExpertsWereExpectedInTheMemoryOfRequests: only matrices that would stream use the memory that requests leave
// unused, and a mixture whose experts alone stream was expected to hold it, too.
func TestExpertsWereExpectedInTheMemoryOfRequests(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 1, Context: 1024, MaxBatchTokens: 32, MaxSequences: 2, Serving: true}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)/4)}}
	m := dispatchtest.OpenModel(t, dir, o)
	plan := m.Plan()
	host := plan.Device(devicemap.CPU)
	if plan.ExpertCacheBytes == 0 || plan.Streamed() != plan.DiskBytesPerToken || host.RequestBytes == 0 {
		t.Fatalf("want experts alone to stream, and memory for requests:\n%s", plan.Explain())
	}
	if got, most := m.ExpectedMemory(), host.Used()-host.RequestBytes-host.RuntimeBytes; got > most {
		t.Errorf("%d bytes are expected in memory, %d of them in that of requests", got, got-most)
	}
}
