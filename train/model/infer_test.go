package model

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/tensor"
)

// TestGoldenServedModels runs the models that serving is checked with: the logits of
// training are those of serving. Quantised ones stay in their files.
func TestGoldenServedModels(t *testing.T) {
	cases := 0
	for _, path := range golden.Glob(t, "infer/models/*/golden.json") {
		var g struct {
			Tolerance struct {
				Atol float64 `json:"logits_atol"`
				Rtol float64 `json:"logits_rtol"`
			}
			Prompts []struct {
				IDs  []int     `json:"input_ids"`
				Last []float64 `json:"last_logits"`
			}
		}
		golden.JSON(t, path, &g)
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := openFile(t, dir, dir)
			if err != nil && strings.Contains(err.Error(), "no values to be copied") {
				m, err = openFile(t, dir, dir, Freeze(func(string) bool { return true }))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			cases++
			tp := tensor.NewTape(tensor.Options{})
			for _, p := range g.Prompts {
				logits, err := m.Logits(tp, Batch{IDs: p.IDs, Length: len(p.IDs)})
				if err != nil {
					t.Fatal(err)
				}
				last := logits.Data()[logits.Len()-len(p.Last):]
				for i, w := range p.Last {
					if d := math.Abs(float64(last[i]) - w); !(d <= g.Tolerance.Atol+g.Tolerance.Rtol*math.Abs(w)) {
						t.Errorf("%d tokens: logit %d is %g, want %g", len(p.IDs), i, last[i], w)
						break
					}
				}
				tp.Reset()
			}
		})
	}
	golden.Count(t, "infer/models on a tape", cases)
}
