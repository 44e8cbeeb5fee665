package dispatch_test

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
	ids, prompt := lawIDs()
	dense := shape{hidden: 96, inner: 352, heads: 4, kv: 2, dim: 24, vocab: 230, layers: 3, dtype: meta.BFloat16, shift: 3}
	experts := dense
	experts.inner, experts.experts = 96, true
	for name, c := range map[string]struct {
		shapes [2]shape
		format meta.QuantFormat
	}{
		"as stored": {[2]shape{dense, experts}, meta.QuantNone},
		"converted": {[2]shape{dense, experts}, meta.QuantQ8},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := new(dispatch.Ledger)
			o := dispatch.Options{Threads: 2, Context: 128, Quantize: c.format}
			var models [2]*dispatch.Model
			var want [2][][]float32
			var weights [2]int64
			for i, s := range c.shapes {
				dir := s.folder(t, rand.New(rand.NewPCG(uint64(i), 5)))
				alone := cpuModel(t, dir, o)
				alone.Warm(context.Background())
				alone.Promote(context.Background())
				await(t, alone)
				want[i], weights[i] = forced(t, alone, ids, prompt, prompt), alone.Status().Held["weights"]
				alone.Close()
				shared := o
				shared.Ledger = ledger
				models[i] = cpuModel(t, dir, shared)
				forced(t, models[i], ids, prompt, prompt) // takes memory for activations
			}
			others := total(ledger.Held()) - ledger.Held()["weights"]
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
					sameLogits(t, name, forced(t, models[at], ids, prompt, prompt), want[at])
					if held := total(ledger.Held()); held > limit {
						t.Fatalf("the models hold %d bytes, their limit is %d", held, limit)
					}
				}
				if turn > 0 && dispatchtest.Copied(models[1-at]) > weights[1-at]/2 {
					t.Errorf("turn %d: the idle model has %d of its %d bytes in memory", turn, dispatchtest.Copied(models[1-at]), weights[1-at])
				}
			}
			ledger.SetLimit(others)
			waitUntilNoWeightsAreHeld(t, ledger)
			sameLogits(t, name, forced(t, models[0], ids, prompt, prompt), want[0])
		})
	}
}

// waitUntilNoWeightsAreHeld waits until no weights are in memory of their own. A copy may be in the making.
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

func total(held map[string]int64) (n int64) {
	for _, v := range held {
		n += v
	}
	return n
}
