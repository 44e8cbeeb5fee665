package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// tight is a model whose limit has room for all weights and the KV cache of one sequence. It is warm
// and promoted. limit is what weights and KV cache may take.
func tight(t *testing.T, change func(*dispatch.Options)) (m *dispatch.Model, limit int64) {
	t.Helper()
	dir := dispatchtest.LawFolder(t)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 1, MaxSequences: 8, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 29}}}
	plan, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	host := plan.Device(devicemap.CPU)
	one := host.KVBytes / 8
	limit = host.WeightsBytes + one
	o.MaxMemory[0].Bytes = float64(limit + host.ActivationBytes)
	if change != nil {
		change(&o)
	}
	plan, o, err = dispatch.Plan(skeleton, o)
	if err != nil || plan.Device(devicemap.Disk).WeightsBytes > 0 {
		t.Fatalf("%+v, error %v; want all weights in memory", plan.Devices, err)
	}
	if m, err = dispatch.New(skeleton, checkpoint, plan.Map, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.Warm(context.Background())
	m.Promote(context.Background())
	dispatchtest.AwaitConversion(t, m)
	return m, limit
}

// held is the memory of weights and KV cache.
func held(m *dispatch.Model) int64 {
	h := m.Status().Held
	return h["weights"] + h["kv"]
}

// The KV cache of a plan has room for one sequence. When more sequences run, it takes memory from
// weights, within the limit, and returns it later. Logits do not change.
func TestKVCacheGrowsAtTheCostOfWeights(t *testing.T) {
	m, limit := tight(t, nil)
	ids, prompt := dispatchtest.LawIDs()
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	before := m.Status().Held["weights"]
	if before == 0 {
		t.Fatal("no weight is promoted")
	}
	long := make([]int32, 120)
	for i := range long {
		long[i] = int32(i)
	}
	var sequences []*dispatch.Sequence
	for i := range 8 {
		s := m.NewSequence()
		sequences = append(sequences, s)
		long[0] = int32(i)
		if _, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: long}}}); err != nil {
			t.Fatalf("sequence %d: %v", i, err)
		}
		if n := held(m); n > limit {
			t.Errorf("%d sequences: %d bytes held, the limit is %d", i+1, n, limit)
		}
	}
	if now := m.Status().Held["weights"]; now >= before {
		t.Errorf("%d bytes of weights beside 8 sequences, %d beside one", now, before)
	}
	for _, s := range sequences {
		s.Free()
	}
	dispatchtest.SameLogits(t, "after growth", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
	dispatchtest.UngrowKV(m)
	for deadline := time.Now().Add(time.Minute); m.Status().Held["weights"] < before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bytes of weights came back", m.Status().Held["weights"], before)
		}
	}
	if n := held(m); n > limit {
		t.Errorf("%d bytes held at the end, the limit is %d", n, limit)
	}
	dispatchtest.SameLogits(t, "after all came back", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
}

// A KV cache whose size the user gave does not grow, nor one below a limit that fell.
func TestKVCacheGrowsWithinLimits(t *testing.T) {
	fixed, _ := tight(t, func(o *dispatch.Options) { o.KVTokens = 128 })
	grown, _ := tight(t, nil)
	if a, b := fixed.KV().Pages, grown.KV().Pages; a >= b {
		t.Errorf("%d pages of a fixed size, %d of one that grows", a, b)
	}
	first, second := fixed.NewSequence(), fixed.NewSequence()
	if err := first.Reserve(100); err != nil {
		t.Fatal(err)
	}
	if err := second.Reserve(100); !errors.Is(err, dispatch.ErrKVFull) {
		t.Errorf("a second sequence: %v, want ErrKVFull", err)
	}
	least := grown.SetMemoryLimit(1)
	a, b := grown.NewSequence(), grown.NewSequence()
	if err := a.Reserve(128); err != nil {
		t.Errorf("one sequence under the minimum: %v", err)
	}
	if err := b.Reserve(128); !errors.Is(err, dispatch.ErrKVFull) {
		t.Errorf("two sequences under the minimum of %d: %v, want ErrKVFull", least, err)
	}
}
