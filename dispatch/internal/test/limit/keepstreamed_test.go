package limit_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// streamedFolder is a model of 8 layers whose matrices are large enough to stream by themselves.
func streamedFolder(t *testing.T) string {
	return dispatchtest.Shape{Hidden: 384, Inner: 1024, Heads: 6, KV: 2, Dim: 64, Vocab: 230, Layers: 8, DType: meta.BFloat16}.Folder(t, rand.New(rand.NewPCG(14, 1)))
}

// halfStreamed is a server's model of streamedFolder with room for about half of the weights that can
// stream. It returns the limit, with all that counts.
func halfStreamed(t *testing.T, dir string) (m *dispatch.Model, plan devicemap.Plan, ledger *dispatch.Ledger) {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 1024, MaxBatchTokens: 32, MaxSequences: 2, Serving: true}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)/4)}}
	plan, o, err = dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if plan.LentBytes == 0 || plan.Device(devicemap.Disk).WeightsBytes == 0 {
		t.Fatalf("the plan lends %d bytes\n%s", plan.LentBytes, plan.Explain())
	}
	o.Ledger = new(dispatch.Ledger)
	if m, err = dispatch.New(skeleton, checkpoint, plan.Map, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, plan, o.Ledger
}

// read returns the bytes that f reads from the disk tier.
func read(m *dispatch.Model, f func()) int64 {
	before := m.Status().TierReadBytes
	f()
	return m.Status().TierReadBytes - before
}

// TestUnusedMemoryKeepsStreamedWeights: a model of 5.8 GB in 4 GiB read 2.5 GB per token, because the
// memory of the KV cache and of requests lay idle. It holds streamed weights now, until others need it;
// the model keeps to its limit in between, and no bit changes.
func TestUnusedMemoryKeepsStreamedWeights(t *testing.T) {
	dir := streamedFolder(t)
	ids, prompt := dispatchtest.Scattered(420), 400
	whole := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, Context: 1024, MaxBatchTokens: 32})
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 32)
	whole.Close()
	m, plan, ledger := halfStreamed(t, dir)
	planned := plan.Device(devicemap.CPU)
	most := planned.StagingBytes + planned.KVBytes + planned.RequestBytes
	within := func(when string) (staging int64) {
		t.Helper()
		held := ledger.Held()
		if sum := held["staging"] + held["kv"] + held["requests"]; sum > most+1<<16 { // blocks are whole pages
			t.Errorf("%s: the model holds %d bytes, the limit is %d: %v", when, sum, most, held)
		}
		return held["staging"]
	}
	s := m.NewSequence()
	dispatchtest.Extend(t, m, s, ids[:40], 30, func() { within("a short sequence") })
	s.Free()
	s = m.NewSequence()
	steps := int64(0)
	n := read(m, func() { dispatchtest.Extend(t, m, s, ids[:60], 50, func() { steps++ }) })
	aligned := (plan.Streamed() - plan.DiskBytesPerToken) / 16 // direct reads take whole blocks, which counts for small bands
	if n > steps*(plan.DiskBytesPerToken+plan.DiskBytesPerToken/8+aligned) || n < steps*(plan.DiskBytesPerToken-plan.DiskBytesPerToken/8) {
		t.Errorf("%d bytes were read in %d passes, planned %d each and %d without lent memory", n, steps, plan.DiskBytesPerToken, plan.Streamed())
	}
	if short := within("a short sequence"); short <= planned.StagingBytes {
		t.Errorf("staging has %d bytes, the plan %d: nothing is lent", short, planned.StagingBytes)
	}
	s.Free()
	same := func(when string) {
		t.Helper()
		dispatchtest.SameLogits(t, when, dispatchtest.ForcedLogits(t, m, ids, prompt, 32), want)
	}
	s = m.NewSequence()
	dispatchtest.SameLogits(t, "while memory is lent", dispatchtest.Extend(t, m, s, ids, prompt, func() { within("while a sequence grows") }), want)
	s.Free()
	dispatchtest.UngrowKV(m)
	dispatchtest.ForcedLogits(t, m, ids, prompt, 32)

	lent := within("before a request")
	ledger.CountRequests(planned.RequestBytes) // as a server of several models does
	if now := within("while requests hold all of theirs"); now >= lent {
		t.Errorf("staging went from %d to %d bytes, want memory returned at once", lent, now)
	}
	same("with large requests")
	m.CountRequests(-planned.RequestBytes)

	m.SetMemoryLimit(planned.LimitBytes + plan.Device(devicemap.Disk).WeightsBytes)
	dispatchtest.ForcedLogits(t, m, ids, prompt, 32)
	if n = read(m, func() { same("with a higher limit") }); n > plan.Streamed() {
		t.Errorf("%d bytes were read with a limit that has room for all weights", n)
	}
	m.SetMemoryLimit(planned.LimitBytes)
	if within("the first limit"); read(m, func() { same("with the first limit again") }) == 0 {
		t.Error("nothing was read: the higher limit is still in use")
	}
}

// TestAnIdleModelReturnsStreamedWeights: weights that an idle model keeps in addition to its window leave memory
// for a model that is used, and come back when the first one is used again. The common limit holds.
func TestAnIdleModelReturnsStreamedWeights(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dir := streamedFolder(t)
	m, plan, ledger := halfStreamed(t, dir)
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	alone := ledger.Held()
	other := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, Context: 128, Ledger: ledger})
	dispatchtest.SameLogits(t, "the other model", dispatchtest.ForcedLogits(t, other, ids, prompt, prompt), want)
	held := ledger.Held()
	limit := dispatchtest.Sum(held) - held["weights"] + 4<<20 // for copies of one
	ledger.SetLimit(limit)
	other.Warm(context.Background())
	other.Promote(context.Background())
	use := func(m *dispatch.Model, until func() bool) {
		t.Helper()
		for pass := 0; !until(); pass++ {
			if pass == 3000 {
				t.Fatalf("%v is held", ledger.Held())
			}
			dispatchtest.SameLogits(t, "a common limit", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			if n := dispatchtest.Sum(ledger.Held()); n > limit+1<<16 {
				t.Fatalf("the models hold %d bytes, their limit is %d: %v", n, limit, ledger.Held())
			}
		}
	}
	window := plan.Device(devicemap.CPU).StagingBytes
	use(other, func() bool { return ledger.Held()["staging"] < (window+alone["staging"])/2 })
	use(m, func() bool { return ledger.Held()["staging"] > (window+alone["staging"])/2 })
}

// TestNoLentMemoryChangesTheAnswer: the limit and what requests hold walk at random between modules, so
// that streamed weights are kept and lost at any moment.
func TestNoLentMemoryChangesTheAnswer(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	m, plan, _ := halfStreamed(t, streamedFolder(t))
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	most := plan.Device(devicemap.CPU).LimitBytes + plan.Device(devicemap.Disk).WeightsBytes
	r := rand.New(rand.NewPCG(14, 3))
	requests := int64(0)
	hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error {
		switch r.IntN(8) {
		case 0:
			m.SetMemoryLimit(r.Int64N(most))
		case 1:
			now := r.Int64N(plan.Device(devicemap.CPU).RequestBytes)
			m.CountRequests(now - requests)
			requests = now
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		dispatchtest.SameLogits(t, "memory that comes and goes", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
	}
	hook.Remove()
	m.CountRequests(-requests)
}
