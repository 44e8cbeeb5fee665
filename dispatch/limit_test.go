package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// limitCases are models whose weights can move: dense and experts, as stored and converted.
func limitCases(t *testing.T, test func(t *testing.T, m *dispatch.Model, ids []int32)) {
	for _, experts := range []bool{false, true} {
		for _, q := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8} {
			t.Run(fmt.Sprintf("experts %v, %v", experts, q), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 3))
				s := shape{hidden: 256, inner: 288, heads: 4, kv: 2, dim: 64, vocab: 300, layers: 3, dtype: meta.BFloat16, experts: experts, tied: experts, shift: 3}
				ids := make([]int32, 40)
				for i := range ids {
					ids[i] = r.Int32N(int32(s.vocab))
				}
				test(t, cpuModel(t, s.folder(t, r), dispatch.Options{Quantize: q, Threads: 2, MaxSequences: 4}), ids)
			})
		}
	}
}

// load brings all weights of m to memory of its own.
func load(t *testing.T, m *dispatch.Model) {
	t.Helper()
	m.Warm(t.Context())
	m.Promote(t.Context())
	await(t, m)
}

// TestALimitThatWalksChangesNoAnswer: the limit changes at random between and within passes, while
// weights come back in the background. Logits keep their bits.
func TestALimitThatWalksChangesNoAnswer(t *testing.T) {
	limitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		want := forced(t, m, ids, 20, 20)
		load(t, m)
		sameLogits(t, "promoted", forced(t, m, ids, 20, 20), want)
		limitWalks(t, m, ids, 20, want)
	})
}

// limitWalks holds that the logits of ids keep the bits of want while the limit changes at random, within passes and
// beside them.
func limitWalks(t *testing.T, m *dispatch.Model, ids []int32, prompt int, want [][]float32) {
	t.Helper()
	most := usedBytes(m)
	r := rand.New(rand.NewPCG(9, 9))
	hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error {
		m.SetMemoryLimit(r.Int64N(most + most/4))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		sameLogits(t, "the limit walks within passes", forced(t, m, ids, prompt, 7), want)
	}
	hook.Remove()
	ctx, cancel := context.WithCancel(t.Context())
	var walking sync.WaitGroup
	walking.Go(func() {
		for r := rand.New(rand.NewPCG(8, 8)); ctx.Err() == nil; {
			m.SetMemoryLimit(r.Int64N(most + most/4))
			time.Sleep(100 * time.Microsecond)
		}
	})
	for range 5 {
		sameLogits(t, "the limit walks beside passes", forced(t, m, ids, prompt, 7), want)
	}
	cancel()
	walking.Wait()
}

func usedBytes(m *dispatch.Model) int64 {
	plan := m.Plan()
	return plan.Device(devicemap.CPU).Used()
}

// TestWeightsLeaveAndComeBack: a lowered limit killed the server, because promoted and converted
// weights never left anonymous memory.
func TestWeightsLeaveAndComeBack(t *testing.T) {
	limitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		load(t, m)
		forced(t, m, ids, 20, 20)
		before, plan := m.Status().Held, m.Plan()
		if before["weights"] == 0 {
			t.Fatal("no weights are held: the test tests nothing")
		}
		least := m.SetMemoryLimit(0)
		low := m.Status().Held
		if low["weights"] >= before["weights"]/2 || sum(low) > least {
			t.Errorf("under the minimum of %d %v is held, of %v before", least, low, before)
		}
		if used := usedBytes(m); least <= 0 || least >= used {
			t.Errorf("a minimum of %d bytes, where all takes %d", least, used)
		}
		forced(t, m, ids, 20, 20)
		if low := m.Status().Held; sum(low) > least {
			t.Errorf("after a pass %v is held, more than the minimum of %d", low, least)
		}
		half := (least + usedBytes(m)) / 2
		m.SetMemoryLimit(half)
		if held := sum(m.Status().Held); held > half {
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

func sum(held map[string]int64) (n int64) {
	for _, bytes := range held {
		n += bytes
	}
	return n
}

// TestExpertsLeaveTheirSlots: the slots of experts are freed when the limit falls and used again when
// it rises; in between a mixture runs with two slots, with the same logits.
func TestExpertsLeaveTheirSlots(t *testing.T) {
	ids, prompt := lawIDs()
	dir := shape{hidden: 96, inner: 77, heads: 4, kv: 2, dim: 20, vocab: 230, layers: 3, dtype: meta.BFloat16, experts: true, choose: 3, shift: 3}.folder(t, rand.New(rand.NewPCG(7, 7)))
	want := forced(t, cpuModel(t, dir, dispatch.Options{Threads: 2}), ids, prompt, 7)
	m := onDisk(t, dir, dispatch.Options{Threads: 2})
	sameLogits(t, "all slots", forced(t, m, ids, prompt, 7), want)
	before := m.Status().Held["staging"]
	least := m.SetMemoryLimit(0)
	if low := m.Status().Held; low["staging"] > before/2 || sum(low) > least {
		t.Errorf("%v is held, with %d bytes of staging before and a minimum of %d", low, before, least)
	}
	read := m.Status().TierReadBytes
	sameLogits(t, "two slots", forced(t, m, ids, prompt, 7), want)
	if m.Status().TierReadBytes == read {
		t.Error("nothing was read: the experts have not left")
	}
	r := rand.New(rand.NewPCG(3, 5))
	hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error { m.SetMemoryLimit(r.Int64N(usedBytes(m))); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		sameLogits(t, "a limit that walks", forced(t, m, ids, prompt, 5), want)
	}
	hook.Remove()
	m.SetMemoryLimit(usedBytes(m))
	if got := m.Status().Held["staging"]; got != before {
		t.Errorf("%d bytes of staging, want %d again", got, before)
	}
	forced(t, m, ids, prompt, 7)
	read = m.Status().TierReadBytes
	forced(t, m, ids, prompt, 7)
	again := m.Status().TierReadBytes - read
	m.SetMemoryLimit(0)
	read = m.Status().TierReadBytes
	forced(t, m, ids, prompt, 7)
	if low := m.Status().TierReadBytes - read; low <= again {
		t.Errorf("%d bytes are read with two slots, %d with all", low, again)
	}
}

// TestLoadingUnderALowLimitHoldsNothing: weights are not brought where there is no room, and the model
// is loaded nevertheless.
func TestLoadingUnderALowLimitHoldsNothing(t *testing.T) {
	limitCases(t, func(t *testing.T, m *dispatch.Model, ids []int32) {
		least := m.SetMemoryLimit(0)
		m.Warm(t.Context())
		m.Promote(t.Context())
		for !m.Status().Promoted {
			time.Sleep(time.Millisecond)
		}
		low := m.Status().Held
		if sum(low) > least {
			t.Errorf("%v is held, more than the minimum of %d", low, least)
		}
		want := forced(t, m, ids, 20, 20)
		m.SetMemoryLimit(usedBytes(m))
		for end := time.Now().Add(time.Minute); m.Status().Held["weights"] <= low["weights"]; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing comes back")
			}
		}
		sameLogits(t, "loaded", forced(t, m, ids, 20, 20), want)
	})
}

// TestTiersAreCounted: hits, misses, evictions and reads had no counters.
func TestTiersAreCounted(t *testing.T) {
	ids, prompt := lawIDs()
	dir := shape{hidden: 96, inner: 77, heads: 4, kv: 2, dim: 20, vocab: 230, layers: 3, dtype: meta.BFloat16, experts: true, choose: 3, shift: 3}.folder(t, rand.New(rand.NewPCG(7, 7)))
	m := onDisk(t, dir, dispatch.Options{Threads: 2, Ledger: new(dispatch.Ledger)})
	forced(t, m, ids, prompt, 7)
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
	cpu := cpuModel(t, dir, dispatch.Options{Threads: 2})
	forced(t, cpu, ids, prompt, 7)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Hits != 0 || n.Misses == 0 {
		t.Errorf("a mapped model: %+v", n)
	}
	load(t, cpu)
	forced(t, cpu, ids, prompt, 7)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Hits == 0 || n.Evictions != 0 {
		t.Errorf("a promoted model: %+v", n)
	}
	cpu.SetMemoryLimit(0)
	if n := cpu.Status().Tiers[devicemap.CPU]; n.Evictions == 0 {
		t.Errorf("under the minimum: %+v", n)
	}
}
