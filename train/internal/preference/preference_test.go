package preference

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random is a batch of four rows whose completions have several lengths.
func random(reference bool) *Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := &Batch{Rows: 4, Columns: 5, Lengths: []int{3, 1, 4, 2}, Desirable: []bool{true, false, false, true}, Divergence: 0.3, Advantages: []float64{1, -0.5, 0.8, -1.3}}
	for row := range b.Rows {
		for i := range b.Columns {
			b.Policy = append(b.Policy, 0.1+r.Float32())
			b.Old = append(b.Old, 0.1+r.Float32())
			b.Text = append(b.Text, i < b.Columns-1)
			b.Answer = append(b.Answer, i < b.Columns-1 && i >= b.Columns-1-b.Lengths[row])
			if reference {
				b.Reference = append(b.Reference, r.Float32())
			}
		}
	}
	return b
}

// TestSlopesAreDerivatives compares each slope with the change of the loss.
func TestSlopesAreDerivatives(t *testing.T) {
	objectives := map[string]interface {
		Compute(*Batch) (*Result, error)
	}{
		"sigmoid":        DPO{Beta: 0.7, Loss: "sigmoid"},
		"smoothed":       DPO{Beta: 0.7, Loss: "sigmoid", Smoothing: 0.2},
		"hinge":          DPO{Beta: 0.7, Loss: "hinge"},
		"ipo":            DPO{Beta: 0.7, Loss: "ipo"},
		"robust":         DPO{Beta: 0.7, Loss: "robust", Smoothing: 0.1},
		"orpo":           ORPO{Beta: 0.7},
		"kto":            KTO{Beta: 0.7, Desirable: 1.5, Undesirable: 0.5},
		"grpo":           GRPO{Beta: 0.3, Epsilon: 0.2, EpsilonHigh: 0.3, Loss: "grpo"},
		"bnpo":           GRPO{Beta: 0.3, Epsilon: 0.2, EpsilonHigh: 0.2, Loss: "bnpo"},
		"dr_grpo":        GRPO{Beta: 0.3, Epsilon: 0.2, EpsilonHigh: 0.2, Loss: "dr_grpo", MaxCompletion: 4},
		"dapo":           GRPO{Beta: 0.3, Epsilon: 0.2, EpsilonHigh: 0.2, Loss: "dapo"},
		"reference-free": DPO{Beta: 0.7, Loss: "sigmoid", ReferenceFree: true},
	}
	for name, o := range objectives {
		t.Run(name, func(t *testing.T) { checkSlopes(t, random(name != "reference-free"), o.Compute) })
	}
}

func checkSlopes(t *testing.T, b *Batch, compute func(*Batch) (*Result, error)) {
	t.Helper()
	got, err := compute(b)
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i := range b.Policy {
		const h = 1.0 / 256
		kept := b.Policy[i]
		var ends [2]float64
		for k, by := range []float32{-h, h} {
			b.Policy[i] = kept + by
			r, err := compute(b)
			if err != nil {
				t.Fatal(err)
			}
			ends[k] = r.Loss
		}
		b.Policy[i] = kept
		want := (ends[1] - ends[0]) / (2 * h)
		if !(math.Abs(want-float64(got.Slope[i])) <= 1e-4*(1+math.Abs(want))) {
			t.Errorf("slope of element %d: got %g, want %g", i, got.Slope[i], want)
		}
		if want != 0 {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no element changes the loss")
	}
}

func TestDPORejectsSettings(t *testing.T) {
	for _, o := range []DPO{{Beta: 0.1, Loss: "nca"}, {Loss: "sigmoid"}, {Beta: math.NaN(), Loss: "sigmoid"}, {Beta: 1, Loss: "hinge", Smoothing: 0.1},
		{Beta: 1, Loss: "robust", Smoothing: 0.5}, {Beta: 1, Loss: "sigmoid", Smoothing: -0.1}, {Beta: 1, Loss: "sigmoid", Smoothing: math.NaN()}} {
		if err := o.Check(); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
	if err := (DPO{Beta: 0.1, Loss: "robust", Smoothing: 0.1}).Check(); err != nil {
		t.Error(err)
	}
}

// TestAdvantagesOfGroups checks scales, groups of equal rewards, and rewards that are not known.
func TestAdvantagesOfGroups(t *testing.T) {
	nan := math.NaN()
	groups := [][]float64{{1, 3}, {2, 2, 2}, {0, nan, 4}, {nan, 5}}
	var all []float64
	for _, g := range groups {
		all = append(all, g...)
	}
	_, whole := Moments(all)
	for scale, want := range map[string][][]float64{
		"none":  {{-1, 1}, {0, 0, 0}, {-2, 0, 2}, {0, 0}},
		"group": {{-1 / (math.Sqrt2 + 1e-4), 1 / (math.Sqrt2 + 1e-4)}, {0, 0, 0}, {-2 / (math.Sqrt(8) + 1e-4), 0, 2 / (math.Sqrt(8) + 1e-4)}, {0, 0}},
		"batch": {{-1 / (whole + 1e-4), 1 / (whole + 1e-4)}, {0, 0, 0}, {-2 / (whole + 1e-4), 0, 2 / (whole + 1e-4)}, {0, 0}},
	} {
		got := GRPO{Scale: scale}.Advantages(groups, all)
		for i := range want {
			for k := range want[i] {
				if !(math.Abs(got[i][k]-want[i][k]) <= 1e-12) {
					t.Errorf("%s: got %v, want %v", scale, got[i], want[i])
					break
				}
			}
		}
	}
}
