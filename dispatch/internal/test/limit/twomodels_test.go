package limit_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestModelsShareAMemoryLimit: of two models with one ledger, the one that is used takes the memory of the
// idle one, back and forth. The limit holds, and no bit of an answer changes.
func TestModelsShareAMemoryLimit(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dense := dispatchtest.Shape{Hidden: 96, Inner: 352, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 3, DType: meta.BFloat16, Shift: 3}
	experts := dense
	experts.Inner, experts.Experts = 96, true
	for name, c := range map[string]struct {
		shapes [2]dispatchtest.Shape
		format meta.QuantFormat
	}{
		"as stored": {[2]dispatchtest.Shape{dense, experts}, meta.QuantNone},
		"converted": {[2]dispatchtest.Shape{dense, experts}, meta.QuantQ8},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := new(dispatch.Ledger)
			o := dispatch.Options{Threads: 2, Context: 128, Quantize: c.format}
			var models [2]*dispatch.Model
			var want [2][][]float32
			var weights [2]int64
			for i, s := range c.shapes {
				dir := s.Folder(t, rand.New(rand.NewPCG(uint64(i), 5)))
				alone := dispatchtest.OpenModel(t, dir, o)
				alone.Warm(context.Background())
				alone.Promote(context.Background())
				dispatchtest.AwaitConversion(t, alone)
				want[i], weights[i] = dispatchtest.ForcedLogits(t, alone, ids, prompt, prompt), alone.Status().Held["weights"]
				alone.Close()
				shared := o
				shared.Ledger = ledger
				models[i] = dispatchtest.OpenModel(t, dir, shared)
				dispatchtest.ForcedLogits(t, models[i], ids, prompt, prompt) // takes memory for activations
			}
			others := dispatchtest.Sum(ledger.Held()) - ledger.Held()["weights"]
			limit := others + max(weights[0], weights[1]) + min(weights[0], weights[1])/4
			ledger.SetLimit(limit)
			for _, m := range models {
				m.Promote(context.Background())
			}
			for turn := range 6 {
				at := turn % 2
				for pass := 0; pass < 3 || dispatchtest.Copied(models[at]) < weights[at]*9/10; pass++ {
					if pass == 3000 {
						t.Fatalf("turn %d: the model that is used has %d of its %d bytes in memory", turn, dispatchtest.Copied(models[at]), weights[at])
					}
					dispatchtest.SameLogits(t, name, dispatchtest.ForcedLogits(t, models[at], ids, prompt, prompt), want[at])
					if held := dispatchtest.Sum(ledger.Held()); held > limit {
						t.Fatalf("the models hold %d bytes, their limit is %d", held, limit)
					}
				}
				if turn > 0 && dispatchtest.Copied(models[1-at]) > weights[1-at]/2 {
					t.Errorf("turn %d: the idle model has %d of its %d bytes in memory", turn, dispatchtest.Copied(models[1-at]), weights[1-at])
				}
			}
			ledger.SetLimit(others)
			waitUntilNoWeightsAreHeld(t, ledger)
			dispatchtest.SameLogits(t, name, dispatchtest.ForcedLogits(t, models[0], ids, prompt, prompt), want[0])
		})
	}
}

// waitUntilNoWeightsAreHeld waits until no weights are in private memory. A copy may be in progress.
func waitUntilNoWeightsAreHeld(t *testing.T, ledger *dispatch.Ledger) {
	t.Helper()
	for range 3000 {
		if ledger.Held()["weights"] == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("without room for weights they take %d bytes", ledger.Held()["weights"])
}
