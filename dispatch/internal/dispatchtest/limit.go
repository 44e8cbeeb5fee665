package dispatchtest

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

// LoadAll loads all weights of m into its own memory.
func LoadAll(t *testing.T, m *dispatch.Model) {
	t.Helper()
	m.Warm(t.Context())
	m.Promote(t.Context())
	AwaitConversion(t, m)
}

// LimitWalks checks that the logits of ids keep the bits of want while the limit changes at
// random, during and between passes. With -short it runs fewer passes.
func LimitWalks(t *testing.T, m *dispatch.Model, ids []int32, prompt int, want [][]float32) {
	t.Helper()
	most, within, beside := UsedBytes(m), 3, 5
	if testing.Short() {
		within, beside = 1, 2
	}
	r := rand.New(rand.NewPCG(9, 9))
	hook, err := m.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error {
		m.SetMemoryLimit(r.Int64N(most + most/4))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range within {
		SameLogits(t, "the limit walks within passes", ForcedLogits(t, m, ids, prompt, 7), want)
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
	for range beside {
		SameLogits(t, "the limit walks beside passes", ForcedLogits(t, m, ids, prompt, 7), want)
	}
	cancel()
	walking.Wait()
}

// UsedBytes returns the host memory that the plan of m takes.
func UsedBytes(m *dispatch.Model) int64 {
	plan := m.Plan()
	return plan.Device(devicemap.CPU).Used()
}

// Sum returns the sum of what a ledger holds.
func Sum(held map[string]int64) (n int64) {
	for _, bytes := range held {
		n += bytes
	}
	return n
}

// LimitCases runs test with models whose weights can be evicted: dense and MoE, as stored and
// converted.
func LimitCases(t *testing.T, test func(t *testing.T, m *dispatch.Model, ids []int32)) {
	for _, experts := range []bool{false, true} {
		for _, q := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8} {
			t.Run(fmt.Sprintf("experts %v, %v", experts, q), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 3))
				s := Shape{Hidden: 256, Inner: 288, Heads: 4, KV: 2, Dim: 64, Vocab: 300, Layers: 3, DType: meta.BFloat16, Experts: experts, Tied: experts, Shift: 3}
				ids := make([]int32, 40)
				for i := range ids {
					ids[i] = r.Int32N(int32(s.Vocab))
				}
				test(t, OpenModel(t, s.Folder(t, r), dispatch.Options{Quantize: q, Threads: 2, MaxSequences: 4}), ids)
			})
		}
	}
}
