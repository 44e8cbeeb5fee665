package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestALimitThatWalksChangesNoAnswer: the limit changes at random between and within passes, while
// weights come back in the background. Logits keep their bits.
func TestALimitThatWalksChangesNoAnswer(t *testing.T) {
	dispatchtest.LimitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		want := dispatchtest.ForcedLogits(t, m, ids, 20, 20)
		dispatchtest.LoadAll(t, m)
		dispatchtest.SameLogits(t, "promoted", dispatchtest.ForcedLogits(t, m, ids, 20, 20), want)
		dispatchtest.LimitWalks(t, m, ids, 20, want)
	})
}

// TestWeightsLeaveAndComeBack: a lowered limit killed the server, because promoted and converted
// weights never left anonymous memory.
func TestWeightsLeaveAndComeBack(t *testing.T) {
	dispatchtest.LimitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		dispatchtest.LoadAll(t, m)
		dispatchtest.ForcedLogits(t, m, ids, 20, 20)
		before, plan := m.Status().Held, m.Plan()
		if before["weights"] == 0 {
			t.Fatal("no weights are held: the test tests nothing")
		}
		least := m.SetMemoryLimit(0)
		low := m.Status().Held
		if low["weights"] >= before["weights"]/2 || dispatchtest.Sum(low) > least {
			t.Errorf("under the minimum of %d %v is held, of %v before", least, low, before)
		}
		if used := dispatchtest.UsedBytes(m); least <= 0 || least >= used {
			t.Errorf("a minimum of %d bytes, where all takes %d", least, used)
		}
		dispatchtest.ForcedLogits(t, m, ids, 20, 20)
		if low := m.Status().Held; dispatchtest.Sum(low) > least {
			t.Errorf("after a pass %v is held, more than the minimum of %d", low, least)
		}
		half := (least + dispatchtest.UsedBytes(m)) / 2
		m.SetMemoryLimit(half)
		if held := dispatchtest.Sum(m.Status().Held); held > half {
			t.Errorf("%d bytes are held under a limit of %d", held, half)
		}
		m.SetMemoryLimit(plan.Device(devicemap.CPU).Used())
		for end := time.Now().Add(time.Minute); m.Status().Held["weights"] != before["weights"]; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v is held, want %v again", m.Status().Held, before)
			}
		}
		if got := m.Status().Held; got["kv"] != before["kv"] {
			t.Errorf("%d bytes of KV cache, want %d again", got["kv"], before["kv"])
		}
	})
}

// TestExpertsLeaveTheirSlots: the slots of experts are freed when the limit falls and used again when
// it rises; in between a mixture runs with two slots, with the same logits.
func TestExpertsLeaveTheirSlots(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dir := dispatchtest.Shape{Hidden: 96, Inner: 77, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 3, DType: meta.BFloat16, Experts: true, Choose: 3, Shift: 3}.Folder(t, rand.New(rand.NewPCG(7, 7)))
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2}), ids, prompt, 7)
	m := dispatchtest.OnDisk(t, dir, dispatch.Options{Threads: 2})
	dispatchtest.SameLogits(t, "all slots", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	before := m.Status().Held["staging"]
	least := m.SetMemoryLimit(0)
	if low := m.Status().Held; low["staging"] > before/2 || dispatchtest.Sum(low) > least {
		t.Errorf("%v is held, with %d bytes of staging before and a minimum of %d", low, before, least)
	}
	read := m.Status().TierReadBytes
	dispatchtest.SameLogits(t, "two slots", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	if m.Status().TierReadBytes == read {
		t.Error("nothing was read: the experts have not left")
	}
	r := rand.New(rand.NewPCG(3, 5))
	hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error { m.SetMemoryLimit(r.Int64N(dispatchtest.UsedBytes(m))); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		dispatchtest.SameLogits(t, "a limit that walks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
	}
	hook.Remove()
	m.SetMemoryLimit(dispatchtest.UsedBytes(m))
	if got := m.Status().Held["staging"]; got != before {
		t.Errorf("%d bytes of staging, want %d again", got, before)
	}
	dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
	read = m.Status().TierReadBytes
	dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
	again := m.Status().TierReadBytes - read
	m.SetMemoryLimit(0)
	read = m.Status().TierReadBytes
	dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
	if low := m.Status().TierReadBytes - read; low <= again {
		t.Errorf("%d bytes are read with two slots, %d with all", low, again)
	}
}

// TestLoadingUnderALowLimitHoldsNothing: weights are not loaded without room for them, and the model
// is loaded nevertheless.
func TestLoadingUnderALowLimitHoldsNothing(t *testing.T) {
	dispatchtest.LimitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		least := m.SetMemoryLimit(0)
		m.Warm(t.Context())
		m.Promote(t.Context())
		for !m.Status().Promoted {
			time.Sleep(time.Millisecond)
		}
		low := m.Status().Held
		if dispatchtest.Sum(low) > least {
			t.Errorf("%v is held, more than the minimum of %d", low, least)
		}
		want := dispatchtest.ForcedLogits(t, m, ids, 20, 20)
		m.SetMemoryLimit(dispatchtest.UsedBytes(m))
		for end := time.Now().Add(time.Minute); m.Status().Held["weights"] <= low["weights"]; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing comes back")
			}
		}
		dispatchtest.SameLogits(t, "loaded", dispatchtest.ForcedLogits(t, m, ids, 20, 20), want)
	})
}

// TestTiersAreCounted: hits, misses, evictions and reads had no counters.
func TestTiersAreCounted(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dir := dispatchtest.Shape{Hidden: 96, Inner: 77, Heads: 4, KV: 2, Dim: 20, Vocab: 230, Layers: 3, DType: meta.BFloat16, Experts: true, Choose: 3, Shift: 3}.Folder(t, rand.New(rand.NewPCG(7, 7)))
	m := dispatchtest.OnDisk(t, dir, dispatch.Options{Threads: 2, Ledger: new(dispatch.Ledger)})
	dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
	st := m.Status()
	disk, reads := st.Tiers[devicemap.Disk], st.Reads
	if disk.Misses == 0 || disk.Hits == 0 || reads.Reads < disk.Misses || reads.Latency <= 0 || reads.Busy <= 0 || reads.Depth < 1 {
		t.Errorf("a streamed model: %+v, %+v", disk, reads)
	}
	var within int64
	for _, n := range reads.Within {
		within += n
	}
	if within > reads.Reads || len(reads.Within) != len(reads.Buckets) {
		t.Errorf("%d reads in %d buckets, of %d", within, len(reads.Within), reads.Reads)
	}
	m.SetMemoryLimit(0)
	if n := m.Status().Tiers[devicemap.Disk].Evictions; n <= disk.Evictions {
		t.Errorf("%d evictions under the minimum, %d before", n, disk.Evictions)
	}
	cpu := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2})
	dispatchtest.ForcedLogits(t, cpu, ids, prompt, 7)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Hits != 0 || n.Misses == 0 {
		t.Errorf("a mapped model: %+v", n)
	}
	dispatchtest.LoadAll(t, cpu)
	dispatchtest.ForcedLogits(t, cpu, ids, prompt, 7)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Hits == 0 || n.Evictions != 0 {
		t.Errorf("a promoted model: %+v", n)
	}
	cpu.SetMemoryLimit(0)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Evictions == 0 {
		t.Errorf("under the minimum: %+v", n)
	}
}
