package model

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/tensor"
)

// gradientSummary is what golden.json says of one gradient.
type gradientSummary struct {
	Sum, L2, Along float64
	First          []float64
}

// TestGoldenGradients compares with torch's of models of the root.
func TestGoldenGradients(t *testing.T) {
	paths := golden.Glob(t, "train/gradients/*/golden.json")
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) { checkAllGradients(t, filepath.Dir(path)) })
	}
	golden.Count(t, "train/gradients", len(paths))
}

// TestGradientsOfEveryKind compares with torch's of the project's own models, which show
// every kind of attention, norm, gate and router.
func TestGradientsOfEveryKind(t *testing.T) {
	own, err := filepath.Glob(ownModel(t, "*"))
	if err != nil || len(own) == 0 {
		t.Fatal("no models", err)
	}
	for _, dir := range own {
		t.Run(filepath.Base(dir), func(t *testing.T) { checkAllGradients(t, dir) })
	}
}

// checkAllGradients holds with blocks remembered and computed again.
func checkAllGradients(t *testing.T, dir string) {
	var g struct {
		microBatch
		Loss      float64
		Gradients map[string]gradientSummary
	}
	golden.JSON(t, filepath.Join(dir, "golden.json"), &g)
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	var first map[string][]float32
	for _, recompute := range []bool{false, true} {
		got := gradients(t, m, g.batch(), recompute)
		if first == nil {
			first = got
		}
		for name, want := range g.Gradients {
			checkSummary(t, name, got[name], want)
			if !slices.Equal(got[name], first[name]) {
				t.Errorf("%s differs where blocks are computed again", name)
			}
		}
	}
	tp := tensor.NewTape(tensor.Options{})
	if loss, err := m.Loss(tp, g.batch(), Options{}); err != nil || math.Abs(float64(loss.Item())-g.Loss) > 1e-5 {
		t.Errorf("loss %v (%v), want %g", loss.Data(), err, g.Loss)
	}
	tp.Reset()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func checkSummary(t *testing.T, name string, g []float32, want gradientSummary) {
	t.Helper()
	var got gradientSummary
	for i, v := range g {
		v := float64(v)
		got.Sum, got.L2, got.Along = got.Sum+v, got.L2+v*v, got.Along+v*math.Cos(float64(i))
		if i < len(want.First) {
			got.First = append(got.First, v)
		}
	}
	got.L2 = math.Sqrt(got.L2)
	scale := 2e-5 * (want.L2 + 1e-3)
	near := func(a, b float64) bool { return math.Abs(a-b) <= scale }
	if len(got.First) != len(want.First) || !near(got.L2, want.L2) || !near(got.Along, want.Along) ||
		math.Abs(got.Sum-want.Sum) > scale*math.Sqrt(float64(max(len(g), 1))) || !slices.EqualFunc(got.First, want.First, near) {
		t.Errorf("%s: got %+v, want %+v", name, got, want)
	}
}
