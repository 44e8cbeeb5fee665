package placement_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// bandedTokens is how many tokens follow a prompt where matrices stream in bands. A pass then reads the disk some hundred times,
// and passes after the first few read the same bands in the same order.
const bandedTokens = 3

// TestGoldenModelsUnderFiveMaps holds law 4 for golden models under device maps. Short tests take two of the maps
// beside the CPU in turn.
func TestGoldenModelsUnderFiveMaps(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
			var want [][]float32
			names := []string{"disk", "alternating", "head on disk", "by hand", "promoted", "in bands"}
			if testing.Short() {
				names = names[cases%3*2:][:2]
			}
			for _, name := range append([]string{"cpu"}, names...) {
				o := dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh}
				if name == "in bands" {
					o = dispatchtest.InBands(o, 256) // as few rows as can be separated, which are 16
				}
				model, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)[name], o)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if name == "promoted" {
					dispatchtest.Promote(t, model)
				}
				for i, p := range g.Prompts {
					ids := p.Greedy
					if name == "in bands" {
						ids = ids[:min(len(ids), bandedTokens)]
					}
					got, logits := dispatchtest.Greedy(t, model, p.IDs, len(ids))
					if !slices.Equal(got, ids) {
						t.Errorf("%s: prompt %d: greedy ids %v, want %v", name, i, got, ids)
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
