package placement_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// shuffled returns an Intercept that executes reads in random order: a read waits until some others
// wait too, or for a moment, and then any of them goes on.
func shuffled(seed uint64) func(read func() error) error {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 12))
	var waiting []chan struct{}
	release := func() {
		mu.Lock()
		defer mu.Unlock()
		if len(waiting) > 0 {
			i := rng.IntN(len(waiting))
			close(waiting[i])
			waiting = slices.Delete(waiting, i, i+1)
		}
	}
	return func(read func() error) error {
		turn := make(chan struct{})
		mu.Lock()
		waiting = append(waiting, turn)
		full := len(waiting) > rng.IntN(4)
		mu.Unlock()
		if full {
			release()
		}
		for {
			select {
			case <-turn:
				return read()
			case <-time.After(100 * time.Microsecond):
				release()
			}
		}
	}
}

// openAtRandom opens the model at dir in a random way: all weights on the cpu, all on the disk, or as auto
// places them within a random limit.
func openAtRandom(t *testing.T, dir string, o dispatch.Options, rng *rand.Rand) (m *dispatch.Model, how string) {
	t.Helper()
	dispatchtest.EvictAtRandom(o.Ledger, rng.Uint64())
	dispatchtest.Intercept(o.Ledger, shuffled(rng.Uint64()))
	switch rng.IntN(3) {
	case 0:
		return dispatchtest.OpenModel(t, dir, o), "on the cpu"
	case 1:
		o.StagingBytes = rng.Int64N(1 << 19)
		return dispatchtest.OnDisk(t, dir, o), fmt.Sprintf("on disk, %d bytes of staging", o.StagingBytes)
	}
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	limit := need.Least + rng.Int64N(max(need.All-need.Least, 1)) - need.Runtime
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
	return dispatchtest.OpenModel(t, dir, o), fmt.Sprintf("auto in %d bytes", limit)
}

// logitsUnderChangingLimits returns the logits of ids while the memory limit of m changes at random before each pass.
func logitsUnderChangingLimits(t *testing.T, m *dispatch.Model, ids []int32, prompt int, rng *rand.Rand) [][]float32 {
	t.Helper()
	m.Warm(context.Background())
	m.Promote(context.Background())
	s := m.NewSequence()
	defer s.Free()
	plan := m.Plan()
	used := plan.Device(devicemap.CPU).Used()
	var out [][]float32
	for s.Len() < len(ids) {
		m.SetMemoryLimit(rng.Int64N(used + used/4 + 1))
		n := 1
		if s.Len() < prompt {
			n = 1 + rng.IntN(prompt-s.Len())
		}
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:n], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, dispatchtest.Rows(got, 0)...)
	}
	return out
}

// checkRandomPolicy compares the logits of weights in memory with those of a model whose policy evicts at
// random, whose reads arrive in random order, and whose limit changes with each pass.
func checkRandomPolicy(t *testing.T, dir string, o dispatch.Options, ids []int32, prompt int, seeds uint64) {
	t.Helper()
	resident := o
	resident.CacheDir = ""
	m := dispatchtest.OpenModel(t, dir, resident)
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	m.Close()
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 13))
		o.Ledger = new(dispatch.Ledger)
		m, how := openAtRandom(t, dir, o, rng)
		dispatchtest.SameLogits(t, fmt.Sprintf("seed %d, %s", seed, how), logitsUnderChangingLimits(t, m, ids, prompt, rng), want)
		m.Close()
		if held := o.Ledger.Held(); held["weights"]+held["staging"]+held["kv"] != 0 {
			t.Errorf("seed %d, %s: a closed model holds %v", seed, how, held)
		}
	}
}

// TestNoPolicyChangesTheAnswer holds law 4 under a random policy and a random order of arrival: for a
// dense model, a mixture of experts, and both converted and coded, also in many bands.
func TestNoPolicyChangesTheAnswer(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	for name, s := range map[string]dispatchtest.Shape{
		"dense":   {Hidden: 96, Inner: 160, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 3},
		"tied":    {Hidden: 64, Inner: 130, Heads: 2, KV: 2, Dim: 32, Vocab: 231, Layers: 2, DType: meta.Float16, Tied: true},
		"experts": {Hidden: 96, Inner: 96, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 5, Experts: true, Choose: 3},
	} {
		dir := s.Folder(t, rand.New(rand.NewPCG(5, 5)))
		for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4, meta.QuantCoded} {
			for _, band := range []int64{0, dispatchtest.SmallBand} {
				t.Run(fmt.Sprintf("%s %v, bands of %d", name, format, band), func(t *testing.T) {
					o := dispatch.Options{Threads: 2, Context: 128}
					switch format {
					case meta.QuantNone:
					case meta.QuantCoded:
						o = dispatchtest.CodingAll(o)
					default:
						o.Quantize = format
					}
					if format != meta.QuantNone {
						o.CacheDir = t.TempDir()
					}
					checkRandomPolicy(t, dir, dispatchtest.InBands(o, band), ids, prompt, 4)
				})
			}
		}
	}
}

// TestNoPolicyChangesTheAnswerOfAnyFormat is TestNoPolicyChangesTheAnswer for one checkpoint of each set of
// stored formats.
func TestNoPolicyChangesTheAnswerOfAnyFormat(t *testing.T) {
	eachFormat(t, func(t *testing.T, g *golden.Model, variant string) {
		if variant != kernels.Names()[0] {
			return // placement is the same for all
		}
		prompt := g.Prompts[0].IDs
		ids := append(slices.Clone(prompt), dispatchtest.OtherIDs(prompt[:min(6, len(prompt))], 1, int(slices.Max(prompt))+1)...)
		checkRandomPolicy(t, g.Dir(), dispatch.Options{Variant: variant, Threads: 2, KVTokens: 256}, ids, len(prompt), 3)
	})
}
