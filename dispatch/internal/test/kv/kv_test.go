package kv_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// kvTolerance is how far logits with keys and values in blocks of q8_0 may be from those with
// all in float32, by the measure of autoTolerance.
const kvTolerance = 1e-2

// TestKVBlocks holds, on every variant, that keys and values in blocks of q8_0 stay within the
// tolerance, and that a token's logits have the same bits in chunks, in a batch that mixes
// prompts with generated tokens, for any number of threads and after a prefix was found.
func TestKVBlocks(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
			everything := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
			model := func(variant string, threads int, p dispatch.Precision, kv meta.DType) *dispatch.Model {
				m, err := dispatch.New(skeleton, checkpoint, everything,
					dispatch.Options{Threads: threads, Variant: variant, Precision: p, KVDType: kv, KVTokens: 4096})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				return m
			}
			tolerance := max(kvTolerance, dispatchtest.RoundingTolerance(skeleton))
			p := g.Prompts[0]
			ids := append(slices.Clone(p.IDs), p.Greedy...)
			prompt := len(p.IDs)
			for len(ids) < 40 && len(ids) > 0 { // more than two pages
				ids, prompt = append(slices.Clone(p.IDs), ids...), prompt+len(p.IDs)
			}
			want := dispatchtest.ForcedLogits(t, model("", 2, dispatch.PrecisionHigh, meta.Float32), ids, prompt, len(ids))
			for _, variant := range kernels.Names() {
				for _, precision := range []dispatch.Precision{dispatch.PrecisionHigh, dispatch.PrecisionAuto} {
					if variant == "go" || variant == "avx2" && precision == dispatch.PrecisionAuto {
						continue // slow, and nothing is rounded
					}
					m := model(variant, 2, precision, meta.Int8)
					got := dispatchtest.ForcedLogits(t, m, ids, prompt, len(ids))
					dispatchtest.CloseLogits(t, variant, got, want, tolerance)
					dispatchtest.SameLogits(t, variant+" in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), got)
					dispatchtest.SameLogits(t, variant+" on one thread", dispatchtest.ForcedLogits(t, model(variant, 1, precision, meta.Int8), ids, prompt, len(ids)), got)
					dispatchtest.Mixed(t, variant, m, ids, prompt, got)
					again, n := dispatchtest.AfterReuse(t, m, ids, prompt)
					if n == 0 && prompt > 16 {
						t.Errorf("%s: no prefix was found of %d tokens", variant, prompt)
					}
					dispatchtest.SameLogits(t, variant+" after a prefix was found", again, got[n:])
				}
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (keys and values in q8_0)", cases)
}
