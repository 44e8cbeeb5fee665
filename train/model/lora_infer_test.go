package model

import (
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// TestGoldenModelsTakeAdapters trains adapters of every linear map, of every expert and every
// router, on every model that
// serving is checked with, in whatever dtype or quantised format its weights stay in its
// file: the loss changes along the gradient as much as the gradient is long, and blocks that
// are computed again give the same bits.
func TestGoldenModelsTakeAdapters(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			m, err := openFile(t, g.Dir(), g.Dir(), Freeze(func(string) bool { return true }))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			every := LoRAConfig{R: 2, AllLinear: true, Parameters: []string{"experts.gate_up_proj", "experts.down_proj", "gate.weight", "router.weight"}}
			if m.meta.Config.ModelType == "inkling_mm_model" { // whose files have rows of gate and up in turn
				every.Parameters = every.Parameters[1:]
			}
			if err := m.AddLoRA(every, rng.New(3)); err != nil {
				t.Fatal(err)
			}
			cases++
			spread(m)
			grads := adapterGradients(t, m, Options{})
			again := adapterGradients(t, m, Options{Recompute: true})
			var squares float64
			for name, g := range grads {
				if !slices.Equal(g, again[name]) {
					t.Errorf("%s differs where blocks are computed again", name)
				}
				for _, v := range g {
					squares += float64(v) * float64(v)
				}
			}
			if slices.ContainsFunc(m.spec.Runs, func(r meta.RunSpec) bool { return r.Detached }) {
				return // the gradient leaves runs out, as transformers' does, so the loss changes by more
			}
			off := math.Inf(1)
			for _, steps := range []int{1, 32} { // many, where the rounding of a steep model is as large as the change
				for _, change := range []float64{2e-2, 5e-3, 2e-3, 5e-4, 2e-4, 5e-5} { // a router may choose another expert on the way
					if !(off <= 0.02) {
						off = min(off, math.Abs(slope(t, m, grads, change/squares, steps)-1))
					}
				}
			}
			if !(off <= 0.02) {
				t.Errorf("the change of the loss is off by %.1f %% along a gradient that is %g long", 100*off, math.Sqrt(squares))
			}
		})
	}
	golden.Count(t, "infer/models with adapters", cases)
}

// slope is the change of the loss between steps of about so many gradients forth and back, relative to the change of a
// linear function. Steps differ by up to a quarter, so that their roundings differ too.
func slope(t *testing.T, m *Model, gradient map[string][]float32, by float64, steps int) float64 {
	t.Helper()
	var changes, linear float64
	for k := range steps {
		by := by * (0.75 + (float64(k)+0.5)/float64(2*steps))
		up, grown := along(t, m, gradient, by)
		down, shrunk := along(t, m, gradient, -by)
		changes, linear = changes+up-down, linear+grown-shrunk
	}
	return changes / linear
}

// along is the loss after a step of so many gradients, and by how much a linear function would change. The sum takes
// parameters as they are after the step: where the gradient is long, the step is short and much of it is rounded.
func along(t *testing.T, m *Model, gradient map[string][]float32, by float64) (loss, change float64) {
	t.Helper()
	kept := map[string][]float32{}
	for name, p := range m.Parameters() {
		kept[name] = slices.Clone(p.Data())
		for i, v := range gradient[name] {
			p.Data()[i] += float32(by) * v
			change += float64(v) * (float64(p.Data()[i]) - float64(kept[name][i]))
		}
	}
	tp := tensor.NewTape(tensor.Options{})
	var mean *tensor.Tensor
	var err error
	tp.NoGrad(func() { mean, err = m.Loss(tp, someTokensOf(m), Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range m.Parameters() {
		copy(p.Data(), kept[name])
	}
	return float64(mean.Item()), change
}

// TestAdaptersOfGatesInTurnAreRejected: published files of Inkling have the rows of gate and up in turn, other than the
// adapters that transformers' names are for.
func TestAdaptersOfGatesInTurnAreRejected(t *testing.T) {
	dir := golden.OwnModel(t, "family-inkling-20").Dir()
	for _, c := range []LoRAConfig{{Targets: []string{"q_proj"}, Parameters: []string{"experts.gate_up_proj"}}, {Targets: []string{"gate_proj"}}} {
		m, err := openFile(t, dir, dir, Freeze(func(string) bool { return true }))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.AddLoRA(c, rng.New(3)); err == nil {
			t.Errorf("adapters of %+v are accepted", c)
		}
		m.Close()
	}
}
