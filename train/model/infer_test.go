package model

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// TestGoldenServedModels runs the models that serving is checked with: the logits of
// training are those of serving. Quantised ones stay in their files.
func TestGoldenServedModels(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			m, err := openFile(t, g.Dir(), g.Dir())
			if err != nil && strings.Contains(err.Error(), "want values that are not quantised") {
				m, err = openFile(t, g.Dir(), g.Dir(), Freeze(func(string) bool { return true }))
			}
			cases++
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tp := tensor.NewTape(tensor.Options{})
			for _, p := range g.Prompts {
				logits, err := m.Logits(tp, Batch{IDs: widened(p.IDs), Length: len(p.IDs)})
				if err != nil {
					t.Fatal(err)
				}
				last := logits.Data()[logits.Len()-len(p.Last):]
				for i, w := range p.Last {
					if !g.Tolerance.Holds(float64(last[i]), w) {
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

// TestModulesForMultiTokenPredictionAreServedOnly: they read hidden states of their model.
func TestModulesForMultiTokenPredictionAreServedOnly(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(ownModel(t, "deepseek-v3"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig(b)
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.NewNext(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(skeleton); !errors.Is(err, ErrServedOnly) || !strings.Contains(err.Error(), "hidden states of another model") {
		t.Errorf("got %v, want %v", err, ErrServedOnly)
	}
}

func widened(ids []int32) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out
}
