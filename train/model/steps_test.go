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

// stateGolden has the fields of golden.json for models whose layers have a state, in addition to those of all.
type stateGolden struct {
	microBatch
	Steps *struct {
		Losses []float64
		After  map[string][2]float64
	}
	Long struct {
		microBatch
		Loss      float64
		Gradients map[string][2]float64
	}
}

// eachWithStates calls f for each of the project's own models whose layers have a state.
func eachWithStates(t *testing.T, f func(t *testing.T, m *Model, g *stateGolden)) {
	cases := 0
	for _, path := range ownFiles(t, "golden.json.gz") {
		var g stateGolden
		if golden.JSON(t, path[:len(path)-len(".gz")], &g); g.Steps == nil {
			continue
		}
		cases++
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			dir := golden.Unpacked(t, dir)
			m, err := openFile(t, dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			m.SetAuxiliary(0)
			f(t, m, &g)
		})
	}
	if cases < 10 {
		t.Errorf("got %d models with states, want at least 10", cases)
	}
}

// lossAndGradients runs a batch and returns its loss.
func lossAndGradients(t *testing.T, m *Model, b Batch, o Options) float64 {
	t.Helper()
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, o)
	if err == nil {
		err = tp.Backward(loss, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return float64(loss.Item())
}

// TestStepsOfModelsWithStates: the losses of three steps of AdamW, and the weights after them, are
// torch's.
func TestStepsOfModelsWithStates(t *testing.T) {
	eachWithStates(t, func(t *testing.T, m *Model, g *stateGolden) {
		opt, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01, Eps: 1e-3, WeightDecay: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range g.Steps.Losses {
			if got := lossAndGradients(t, m, g.batch(), Options{}); !(math.Abs(got-want) <= 1e-5*(1+want)) {
				t.Errorf("step %d: loss is %v, torch's %v", i+1, got, want)
			}
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			opt.ZeroGrad()
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

// TestLongTextsOfModelsWithStates: the gradients of a text with several checkpoints of states are torch's in
// float64. Those of torch in float32 are off by up to 2e-5 of their norm.
func TestLongTextsOfModelsWithStates(t *testing.T) {
	eachWithStates(t, func(t *testing.T, m *Model, g *stateGolden) {
		for _, recompute := range []bool{false, true} {
			if got := lossAndGradients(t, m, g.Long.batch(), Options{Recompute: recompute}); !(math.Abs(got-g.Long.Loss) <= 1e-5*(1+g.Long.Loss)) {
				t.Errorf("loss is %v, torch's %v", got, g.Long.Loss)
			}
			got := named(t, m.Gradients)
			for name, want := range g.Long.Gradients {
				pair, scale := pairOf(got[name]), 5e-5*(want[0]+1e-2)
				if got[name] == nil || !(math.Abs(pair[0]-want[0]) <= scale && math.Abs(pair[1]-want[1]) <= scale) {
					t.Errorf("%s: got norm and product %v, torch has %v", name, pair, want)
				}
			}
			for _, p := range m.Parameters() {
				p.ZeroGrad()
			}
		}
	})
}
