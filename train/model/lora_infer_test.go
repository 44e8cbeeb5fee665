package model

import (
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
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
			m, err := openFile(t, g.Dir, g.Dir, Freeze(func(string) bool { return true }))
			if served(t, g, err) {
				cases++
				return
			}
			defer m.Close()
			every := LoRAConfig{R: 2, AllLinear: true, Parameters: []string{"experts.gate_up_proj", "experts.down_proj", "gate.weight", "router.weight"}}
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
			length := math.Sqrt(squares)
			off := math.Inf(1)
			for _, h := range []float64{1e-3, 3e-4, 1e-4, 1e-5, 1e-6} { // a router may choose another expert on the way, and some delta nets are steep
				slope := (along(t, m, grads, h/length) - along(t, m, grads, -h/length)) / (2 * h)
				off = min(off, math.Abs(slope-length))
			}
			if !(off <= 0.02*length) {
				t.Errorf("the gradient is %g long, the change of the loss is off by %g", length, off)
			}
		})
	}
	golden.Count(t, "infer/models with adapters", cases)
}

// along is the loss at a distance along a direction.
func along(t *testing.T, m *Model, direction map[string][]float32, by float64) float64 {
	t.Helper()
	kept := map[string][]float32{}
	for name, p := range m.Parameters() {
		kept[name] = slices.Clone(p.Data())
		for i, v := range direction[name] {
			p.Data()[i] += float32(by) * v
		}
	}
	tp := tensor.NewTape(tensor.Options{})
	var loss *tensor.Tensor
	var err error
	tp.NoGrad(func() { loss, err = m.Loss(tp, someTokens(), Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range m.Parameters() {
		copy(p.Data(), kept[name])
	}
	return float64(loss.Item())
}
