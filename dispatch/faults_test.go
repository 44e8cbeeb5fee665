package dispatch_test

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// TestADiskThatFailsOneReadInAThousand generates from a disk whose reads fail now and then, while the
// limit walks at random: each failed read is repeated, and the logits are those of all weights in memory.
func TestADiskThatFailsOneReadInAThousand(t *testing.T) {
	dir := mixtureFolder(t, 77)
	skeleton, checkpoint := open(t, dir)
	ids, prompt := lawIDs()
	o := dispatch.Options{Threads: 2, Context: 256, MaxBatchTokens: 32, MaxSequences: 2}
	whole := cpuModel(t, dir, o)
	want := forced(t, whole, ids, prompt, 9)
	whole.Close()
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	limit := need.Least - dispatch.RuntimeBytes + (need.All-need.Least)/4
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger = new(dispatch.Ledger)
	var reads, failed atomic.Int64
	o.Ledger.Intercept(func(read func() error) error {
		if reads.Add(1)%1000 == 500 {
			failed.Add(1)
			return errors.New("a sector cannot be read")
		}
		return read()
	})
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rng := rand.New(rand.NewPCG(5, 5))
	for round := 0; failed.Load() < 3 && round < 400; round++ {
		m.SetMemoryLimit(limit/2 + rng.Int64N(limit))
		sameLogits(t, "with a failing disk", forced(t, m, ids, prompt, 9), want)
	}
	if failed.Load() < 3 {
		t.Errorf("%d of %d reads failed, want 3", failed.Load(), reads.Load())
	}
}
