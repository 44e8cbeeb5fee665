package optim

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestMuonIsTorchs compares steps with torch's (scripts/make-muon-fixtures.py), with the state saved and
// restored in between.
func TestMuonIsTorchs(t *testing.T) {
	var want struct {
		Shapes [][]int
		Cases  []struct {
			Options struct {
				WeightDecay float64 `json:"weight_decay"`
				Momentum    float64
				Adjust      string `json:"adjust_lr_fn"`
			}
			referenceSteps
		}
	}
	b, err := golden.Read(filepath.Join("testdata", "muon.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	for c, w := range want.Cases {
		stepsAre(t, fmt.Sprintf("case %d", c), want.Shapes, w.referenceSteps, func(list []Param) (*Descent, error) {
			return NewMuon(list, MuonOptions{LR: 0.02, WeightDecay: w.Options.WeightDecay, Momentum: w.Options.Momentum, MatchRMS: w.Options.Adjust == "match_rms_adamw"})
		}, 2e-6)
	}
}

// TestMuonStepsStacksAndEnds: each matrix of a stack is stepped by itself, and matrices of a group with Adam
// as AdamW steps them.
func TestMuonStepsStacksAndEnds(t *testing.T) {
	values, grads := make([]float32, 24), make([]float32, 24)
	for i := range values {
		values[i], grads[i] = float32(i%7)-3, float32(i%5)-1.7
	}
	muon := func(adam bool, shape []int, v, g []float32) []float32 {
		p := &matrixParam{VectorParam{Value: slices.Clone(v), Gradient: g}, shape}
		opt, err := NewMuon(nil, MuonOptions{LR: 0.1})
		if err == nil {
			err = opt.AddGroup([]Param{p}, func(g *Group) { g.Adam = adam })
		}
		if err == nil {
			err = opt.Step()
		}
		if err != nil {
			t.Fatal(err)
		}
		return p.Value
	}
	apart := slices.Concat(muon(false, []int{3, 4}, values[:12], grads[:12]), muon(false, []int{3, 4}, values[12:], grads[12:]))
	if got := muon(false, []int{2, 3, 4}, values, grads); !slices.Equal(got, apart) {
		t.Errorf("got %v of a stack, want %v", got, apart)
	}
	plain := &VectorParam{Value: slices.Clone(values), Gradient: grads}
	adamw, err := NewAdamW([]Param{plain}, AdamOptions{LR: 0.1})
	if err == nil {
		err = adamw.Step()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := muon(true, []int{6, 4}, values, grads); !slices.Equal(got, plain.Value) {
		t.Errorf("got %v with Adam, want %v", got, plain.Value)
	}
	opt, err := NewMuon([]Param{plain}, MuonOptions{})
	if err == nil {
		err = opt.Replace(func(p Param) (Param, error) { return p, nil })
	}
	if err == nil || !strings.Contains(err.Error(), "steps whole matrices") {
		t.Errorf("got %v where parameters are split, want an error", err)
	}
}
