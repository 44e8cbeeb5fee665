package model

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/nn"
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
			if served(t, g, err) {
				return
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

// served reports whether a model can be served but not trained, which the error must then say.
func served(t *testing.T, g *golden.Model, err error) bool {
	t.Helper()
	want := reasonOf(t, g.Dir())
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
	return want != nil
}

// reasonOf returns the error of a model that cannot be trained, or nil.
func reasonOf(t *testing.T, dir string) error {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig(b)
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		t.Fatal(err)
	}
	if program.Untrained() != "" {
		return ErrServedOnly
	}
	return nil
}

func widened(ids []int32) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out
}
