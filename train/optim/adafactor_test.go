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

// matrixParam is a parameter with a shape.
type matrixParam struct {
	VectorParam
	shape []int
}

func (m *matrixParam) Shape() []int { return m.shape }

// adafactorFixture is what transformers computed.
type adafactorFixture struct {
	Shapes [][]int
	Cases  []struct {
		Options struct {
			WeightDecay    float64 `json:"weight_decay"`
			ClipThreshold  float64 `json:"clip_threshold"`
			Beta1          float64
			ScaleParameter bool `json:"scale_parameter"`
		}
		referenceSteps
	}
}

func readAdafactor(t *testing.T) (f adafactorFixture) {
	t.Helper()
	b, err := golden.Read(filepath.Join("testdata", "adafactor.json"))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAdafactorIsTransformers compares steps with transformers' (scripts/make-adafactor-fixtures.py),
// with the state saved and restored in between.
func TestAdafactorIsTransformers(t *testing.T) {
	want := readAdafactor(t)
	for c, w := range want.Cases {
		stepsAre(t, fmt.Sprintf("case %d", c), want.Shapes, w.referenceSteps, func(list []Param) (*Descent, error) {
			return NewAdafactor(list, AdafactorOptions{LR: 0.01, WeightDecay: w.Options.WeightDecay, ClipThreshold: w.Options.ClipThreshold, Beta1: w.Options.Beta1, ScaleParameter: w.Options.ScaleParameter})
		}, 1e-6)
	}
}

// referenceSteps are the steps of a reference: the values of each parameter before them, the
// gradients of each step, and the values behind it.
type referenceSteps struct {
	Start [][]float32
	Steps []struct{ Grads, Values [][]float32 }
}

// stepsAre compares the steps of an optimizer with a reference. Another optimizer continues before
// the third step, with the state of the first.
func stepsAre(t *testing.T, what string, shapes [][]int, want referenceSteps, create func([]Param) (*Descent, error), tolerance float64) {
	t.Helper()
	var opt *Descent
	var params []*matrixParam
	begin := func(start [][]float32, state *OptimizerState) {
		var list []Param
		params = nil
		for i, values := range start {
			p := &matrixParam{VectorParam{Value: slices.Clone(values)}, shapes[i]}
			params, list = append(params, p), append(list, p)
		}
		var err error
		if opt, err = create(list); err == nil && state != nil {
			err = opt.LoadState(*state)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begin(want.Start, nil)
	for n, step := range want.Steps {
		if n == 2 {
			var held [][]float32
			for _, p := range params {
				held = append(held, p.Value)
			}
			state := opt.State()
			begin(held, &state)
		}
		for i, g := range step.Grads {
			params[i].Gradient = g
		}
		if err := opt.Step(); err != nil {
			t.Fatal(err)
		}
		for i, values := range step.Values {
			checkValues(t, fmt.Sprintf("%s, step %d: parameter %d", what, n+1, i), params[i].Value, values, 1, tolerance)
		}
	}
}

// TestAdafactorKeepsRowsAndColumns: the state of a matrix is a row and a column, of which another length
// is rejected, and parts of matrices are not stepped.
// TestAParameterWithoutDimensionsPanicked: Adafactor and Muon took it for an empty vector. It steps as a vector of 1.
func TestAParameterWithoutDimensionsPanicked(t *testing.T) {
	for name, make := range map[string]func([]Param) (*Descent, error){
		"Adafactor": func(p []Param) (*Descent, error) { return NewAdafactor(p, AdafactorOptions{}) },
		"Muon":      func(p []Param) (*Descent, error) { return NewMuon(p, MuonOptions{}) },
	} {
		values := map[int]float32{}
		for _, shape := range [][]int{{}, {1}} {
			p := &matrixParam{VectorParam{Value: []float32{3}, Gradient: []float32{0.5}}, shape}
			if err := must(make([]Param{p})).Step(); err != nil {
				t.Fatal(err)
			}
			values[len(shape)] = p.Value[0]
		}
		if values[0] != values[1] || values[0] >= 3 {
			t.Errorf("%s: steps to %v, as a vector to %v, want the same below 3", name, values[0], values[1])
		}
	}
}

func TestAdafactorKeepsRowsAndColumns(t *testing.T) {
	p := &matrixParam{VectorParam{Value: make([]float32, 300*500), Gradient: make([]float32, 300*500)}, []int{300, 500}}
	for i := range p.Gradient {
		p.Gradient[i] = float32(i%7) - 3
	}
	opt, err := NewAdafactor([]Param{p}, AdafactorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := opt.Replace(func(p Param) (Param, error) { return p, nil }); err == nil || !strings.Contains(err.Error(), "steps whole matrices") {
		t.Errorf("parts: %v", err)
	}
	if err := opt.Step(); err != nil {
		t.Fatal(err)
	}
	s := opt.State()
	if len(s.Params[0].Slots) != 2 || len(s.Params[0].Slots[rowMeans]) != 300 || len(s.Params[0].Slots[columnMeans]) != 500 {
		t.Errorf("state of %d arrays", len(s.Params[0].Slots))
	}
	s.Params[0].Slots[rowMeans] = make([]float32, 301)
	if err := opt.LoadState(s); err == nil || !strings.Contains(err.Error(), "exp_avg_sq_row has 301 elements, want 300") {
		t.Errorf("a row too long: %v", err)
	}
	if _, err := NewAdafactor(nil, AdafactorOptions{ClipThreshold: -1}); err == nil {
		t.Error("a negative threshold is taken")
	}
}
