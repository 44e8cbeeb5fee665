package placement_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

func TestGoldenModelsUnderFiveMaps(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir)
			var want [][]float32
			for _, name := range []string{"cpu", "disk", "alternating", "head on disk", "by hand", "promoted", "in bands"} {
				o := dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh}
				if name == "in bands" {
					o = dispatchtest.InBands(o, 256)
				}
				model, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)[name], o)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if name == "promoted" {
					dispatchtest.Promote(t, model)
				}
				for i, p := range g.Prompts {
					got, logits := dispatchtest.Greedy(t, model, p.IDs, len(p.Greedy))
					if !slices.Equal(got, p.Greedy) {
						t.Errorf("%s: prompt %d: greedy ids %v, want %v", name, i, got, p.Greedy)
					}
					if name == "cpu" {
						want = append(want, logits)
					} else if at := dispatchtest.FirstDifference(logits, want[i]); at >= 0 {
						t.Errorf("%s: prompt %d: logit %d is %v; on cpu it is %v", name, i, at, logits[at], want[i][at])
					}
				}
				model.Close()
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (five maps)", cases)
}
