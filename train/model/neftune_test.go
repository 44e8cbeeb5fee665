package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// TestNEFTuneIsTransformers: the noise on embeddings is transformers', number for number
// (scripts/make-neftune-fixtures.py), and evaluation has none.
func TestNEFTuneIsTransformers(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "neftune.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		IDs       []int
		Length    int
		Seed      uint64
		Alpha     float64
		Losses    []float64
		Gradients map[string][]float32
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("testdata", "padding-row", "untied")
	batch := Batch{IDs: want.IDs, Length: want.Length}
	for _, recompute := range []bool{false, true} {
		m, err := openFile(t, dir, filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Recompute: recompute, Noise: &Noise{Alpha: want.Alpha, Uniform: rng.New(want.Seed).Uniform}}
		tp := tensor.NewTape(tensor.Options{})
		for i, w := range want.Losses {
			for _, p := range m.Parameters() {
				p.ZeroGrad()
			}
			loss, err := m.Loss(tp, batch, o)
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(float64(loss.Item()) - w); !(d <= 1e-5) {
				t.Errorf("recompute %v: loss %d is %v, transformers' %v", recompute, i, loss.Item(), w)
			}
			if err := tp.Backward(loss, 1); err != nil {
				t.Fatal(err)
			}
		}
		sameGradients(t, m, want.Gradients)
		var noisy, quiet float32
		tp.NoGrad(func() { noisy, quiet = item(t, m, tp, batch, o), item(t, m, tp, batch, Options{}) })
		if noisy != quiet {
			t.Errorf("evaluation has noise: %v, want %v", noisy, quiet)
		}
	}
}

func item(t *testing.T, m *Model, tp *tensor.Tape, b Batch, o Options) float32 {
	t.Helper()
	loss, err := m.Loss(tp, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return loss.Item()
}
