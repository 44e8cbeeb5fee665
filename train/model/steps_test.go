package model

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// TestStepsOfModelsWithStates: the losses of three steps of AdamW, and the weights after them, are
// torch's.
func TestStepsOfModelsWithStates(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(ownModel(t, "*"), "golden.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, path := range paths {
		var g struct {
			microBatch
			Steps *struct {
				Losses []float64
				After  map[string][2]float64
			}
		}
		if golden.JSON(t, path[:len(path)-len(".gz")], &g); g.Steps == nil {
			continue
		}
		cases++
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m, err := openFile(t, dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			opt, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01, Eps: 1e-3, WeightDecay: 0.1})
			if err != nil {
				t.Fatal(err)
			}
			m.SetAuxiliary(0)
			for i, want := range g.Steps.Losses {
				tp := tensor.NewTape(tensor.Options{})
				loss, err := m.Loss(tp, g.batch(), Options{})
				if err == nil {
					err = tp.Backward(loss, 1)
				}
				if err == nil {
					err = opt.Step()
				}
				if err != nil {
					t.Fatal(err)
				}
				opt.ZeroGrad()
				if got := float64(loss.Item()); math.Abs(got-want) > 1e-5*(1+want) {
					t.Errorf("step %d: loss is %v, torch's %v", i+1, got, want)
				}
			}
			after := named(t, m.Checkpoint)
			for name, want := range g.Steps.After {
				if after[name] == nil {
					t.Errorf("no weight %s", name)
				}
				checkPair(t, name, after[name], want)
			}
		})
	}
	if cases < 1 {
		t.Errorf("got steps of %d models, want some", cases)
	}
}
