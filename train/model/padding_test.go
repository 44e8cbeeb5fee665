package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// TestRoutersLossLeavesPaddingOut compares the loss of a padded batch and its gradients with
// transformers' (scripts/make-router-fixtures.py).
func TestRoutersLossLeavesPaddingOut(t *testing.T) {
	dir := filepath.Join("testdata", "router-padding")
	b, err := os.ReadFile(filepath.Join(dir, "padding.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		IDs, Labels, Mask []int
		Length            int
		Loss, Auxiliary   float64
		Gradients         map[string][]float32
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	batch := Batch{IDs: want.IDs, Labels: want.Labels, Length: want.Length}
	for _, m := range want.Mask {
		batch.Mask = append(batch.Mask, m != 0)
	}
	for _, recompute := range []bool{false, true} {
		m, err := openFile(t, dir, filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		tp := tensor.NewTape(tensor.Options{})
		loss, err := m.Loss(tp, batch, Options{Recompute: recompute})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(float64(loss.Item()) - want.Loss); !(d <= 1e-5) {
			t.Errorf("recompute %v: loss is %v, transformers' %v", recompute, loss.Item(), want.Loss)
		}
		if err := tp.Backward(loss, 1); err != nil {
			t.Fatal(err)
		}
		sameGradients(t, m, want.Gradients)
		all := batch
		all.Mask = nil
		if loss, err = m.Loss(tp, all, Options{}); err != nil || math.Abs(float64(loss.Item())-want.Loss) < 1e-3 {
			t.Errorf("with padding: %v (%v), want another loss than %v", loss.Item(), err, want.Loss)
		}
		all.Mask = []bool{true}
		if _, err := m.Loss(tp, all, Options{}); err == nil || !strings.Contains(err.Error(), "got a mask of 1 entries for 21 ids") {
			t.Errorf("a short mask: %v", err)
		}
	}
}

// sameGradients compares gradients by path with transformers'.
func sameGradients(t *testing.T, m *Model, want map[string][]float32) {
	t.Helper()
	seen := 0
	for name, p := range m.Parameters() {
		g, ok := want[name]
		if !ok {
			continue
		}
		seen++
		for i, w := range g {
			if d := math.Abs(float64(p.Grad()[i] - w)); !(d <= 2e-5) {
				t.Fatalf("gradient %s[%d] is %g, transformers' %g", name, i, p.Grad()[i], w)
			}
		}
	}
	if seen != len(want) {
		t.Errorf("compared %d gradients, want %d", seen, len(want))
	}
}

// TestPaddingRowStaysStill: the padding token's row got a gradient of its lookups, which
// transformers' padding_idx leaves out (scripts/make-padding-fixtures.py). As a row of a tied head
// it has one.
func TestPaddingRowStaysStill(t *testing.T) {
	for _, name := range []string{"untied", "tied"} {
		dir := filepath.Join("testdata", "padding-row", name)
		b, err := os.ReadFile(filepath.Join(dir, "padding.json"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			IDs, Labels []int
			Length      int
			Loss        float64
			Gradients   map[string][]float32
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		for _, recompute := range []bool{false, true} {
			m, err := openFile(t, dir, filepath.Join(dir, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			tp := tensor.NewTape(tensor.Options{})
			loss, err := m.Loss(tp, Batch{IDs: want.IDs, Labels: want.Labels, Length: want.Length}, Options{Recompute: recompute})
			if err != nil {
				t.Fatal(err)
			}
			if d := math.Abs(float64(loss.Item()) - want.Loss); !(d <= 1e-5) {
				t.Errorf("%s, recompute %v: loss is %v, transformers' %v", name, recompute, loss.Item(), want.Loss)
			}
			if err := tp.Backward(loss, 1); err != nil {
				t.Fatal(err)
			}
			sameGradients(t, m, want.Gradients)
		}
	}
}
