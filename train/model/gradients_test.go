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
	Off            float64 // of torch in float32, where it is known
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
	for _, path := range ownFiles(t, "golden.json.gz") {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) { checkAllGradients(t, dir) })
	}
}

// checkAllGradients holds with blocks remembered and computed again.
func checkAllGradients(t *testing.T, dir string) {
	var g struct {
		microBatch
		Loss      float64
		LossOff   float64 `json:"loss_off"` // of torch in float32, where it is known
		Gradients map[string]gradientSummary
	}
	golden.JSON(t, filepath.Join(dir, "golden.json"), &g)
	dir = golden.Unpacked(t, dir)
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
	if loss, err := m.Loss(tp, g.batch(), Options{}); err != nil || !(math.Abs(float64(loss.Item())-g.Loss) <= 1e-5+10*g.LossOff) {
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
	if want.L2 < 1e-7 && got.L2 < 1e-7 && len(g) > 0 {
		return // 0 but for rounding: that of a bias of keys without rope, which moves all scores of a row alike
	}
	scale := 2e-5 * (want.L2 + 1e-3)
	if want.Off > 0 { // of a fresh model, whose weights were not chosen
		scale = 5e-5*(want.L2+1e-2) + 10*want.Off
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= scale }
	if len(got.First) != len(want.First) || !near(got.L2, want.L2) || !near(got.Along, want.Along) ||
		!(math.Abs(got.Sum-want.Sum) <= scale*math.Sqrt(float64(max(len(g), 1)))) || !slices.EqualFunc(got.First, want.First, near) {
		t.Errorf("%s: got %+v, want %+v", name, got, want)
	}
}

// TestThreadsChangeNoGradient: nor do batches of other lengths in between.
func TestThreadsChangeNoGradient(t *testing.T) {
	for _, name := range []string{"gemma2", "deepseek-v3", "gpt-oss", "starcoder2", "lfm2-moe", "qwen3-next", "nemotron-h", "mistral-large4", "deepseek-v4"} {
		dir := ownModel(t, name)
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		b := Batch{Length: 13}
		for i := range 5 * b.Length {
			b.IDs = append(b.IDs, 3+i*i%29)
		}
		var first map[string][]float32
		for _, threads := range []int{1, 2, 3} {
			tp := tensor.NewTape(tensor.Options{Threads: threads})
			for _, length := range []int{3, 13} {
				for _, p := range m.Parameters() {
					p.ZeroGrad()
				}
				loss, err := m.Loss(tp, Batch{IDs: b.IDs[:5*length], Length: length}, Options{})
				if err == nil {
					err = tp.Backward(loss, 0.5)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got := named(t, m.Gradients)
			if first == nil {
				first = got
			}
			for tensor, g := range got {
				if !slices.Equal(g, first[tensor]) {
					t.Errorf("%s: %s differs with %d threads", name, tensor, threads)
				}
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
