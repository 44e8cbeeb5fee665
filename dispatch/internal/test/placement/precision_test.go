package placement_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
)

// TestPrecisionAuto holds, on every variant, that rounded activations stay within
// the tolerance, and that a token's logits have the same bits in chunks, in a batch that
// mixes prompts with generated tokens, and for any number of threads.
func TestPrecisionAuto(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
			everything := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
			model := func(variant string, threads int, p dispatch.Precision) *dispatch.Model {
				m, err := dispatch.New(skeleton, checkpoint, everything, dispatch.Options{Threads: threads, Variant: variant, Precision: p, KVTokens: 4096})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				return m
			}
			tolerance := dispatchtest.RoundingTolerance(skeleton)
			p := g.Prompts[0]
			ids := append(slices.Clone(p.IDs), p.Greedy...)
			high := dispatchtest.ForcedLogits(t, model("", 2, dispatch.PrecisionHigh), ids, len(p.IDs), len(ids))
			for _, variant := range kernels.Names() {
				if variant == "go" || variant == "avx2" {
					continue // they do not round, and are slow
				}
				m := model(variant, 2, dispatch.PrecisionAuto)
				auto := dispatchtest.ForcedLogits(t, m, ids, len(p.IDs), len(ids))
				dispatchtest.CloseLogits(t, variant, auto, high, tolerance)
				dispatchtest.SameLogits(t, variant+" in chunks", dispatchtest.ForcedLogits(t, m, ids, len(p.IDs), 3), auto)
				dispatchtest.SameLogits(t, variant+" on one thread", dispatchtest.ForcedLogits(t, model(variant, 1, dispatch.PrecisionAuto), ids, len(p.IDs), len(ids)), auto)
				dispatchtest.Mixed(t, variant, m, ids, len(p.IDs), auto)
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (precision auto)", cases)
}
