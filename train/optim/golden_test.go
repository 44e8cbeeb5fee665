package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// figure is a number that may be printed as "nan", "inf" or "-inf".
type figure float64

func (f *figure) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		v, ok := map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "-inf": math.Inf(-1)}[s]
		if !ok {
			return fmt.Errorf("no number: %s", b)
		}
		*f = figure(v)
		return nil
	}
	var v *float64
	err := json.Unmarshal(b, &v)
	if v != nil {
		*f = figure(*v)
	}
	return err
}

// flat is a tensor of any rank, read row by row.
type flat []float32

func (f *flat) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(b, &list) == nil {
		*f = flat{}
		for _, item := range list {
			var part flat
			if err := part.UnmarshalJSON(item); err != nil {
				return err
			}
			*f = append(*f, part...)
		}
		return nil
	}
	var v figure
	if err := v.UnmarshalJSON(b); err != nil {
		return err
	}
	*f = flat{float32(v)}
	return nil
}

// near compares with NaN equal to itself and both zeroes alike.
func near(got, want, tolerance float64) bool {
	if math.IsNaN(got) || math.IsNaN(want) {
		return math.IsNaN(got) && math.IsNaN(want)
	}
	return got == want || math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}

func checkNumbers(t *testing.T, what string, got []float32, want flat, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !near(float64(got[i]), float64(want[i]), tolerance) {
			t.Errorf("%s[%d] is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func each[C any](t *testing.T, pattern string, check func(C, *testing.T)) int {
	t.Helper()
	n := 0
	for _, path := range golden.Glob(t, pattern) {
		var file struct{ Cases []C }
		golden.JSON(t, path, &file)
		for i, c := range file.Cases {
			n++
			t.Run(fmt.Sprintf("%s/%d", pattern, i), func(t *testing.T) { check(c, t) })
		}
	}
	return n
}

func TestGoldenOps(t *testing.T) {
	golden.Count(t, "train/ops/optimizers", each(t, "train/ops/optimizers.json", optimizerCase.check))
	golden.Count(t, "train/ops/clip_grad", each(t, "train/ops/clip_grad.json", clipCase.check))
}

type optimizerOptions struct {
	LR           *float64
	Momentum     float64
	Dampening    float64
	WeightDecay  *float64 `json:"weight_decay"`
	Nesterov     bool
	Maximize     bool
	Betas        []float64
	Eps          float64
	AMSGrad      bool
	LRDecay      float64 `json:"lr_decay"`
	InitialValue float64 `json:"initial_accumulator_value"`
	Alpha        float64
	Centered     bool
}

type optimizerCase struct {
	Optimizer string
	Options   optimizerOptions
	Initial   flat
	Steps     []struct {
		Grad, Weight flat
		State        map[string]flat
	}
}

// build makes the optimizer that torch's name and options mean.
func build(t *testing.T, name string, o optimizerOptions, params ...Param) *Descent {
	t.Helper()
	var lr, decay float64
	if o.LR != nil {
		lr = *o.LR
	}
	if o.WeightDecay != nil {
		decay = *o.WeightDecay
	} else if name == "AdamW" {
		decay = DefaultAdamW().WeightDecay
	}
	adam := AdamOptions{LR: lr, Eps: o.Eps, WeightDecay: decay, AMSGrad: o.AMSGrad, Maximize: o.Maximize}
	if len(o.Betas) == 2 {
		adam.Beta1, adam.Beta2 = o.Betas[0], o.Betas[1]
	}
	var d *Descent
	var err error
	switch name {
	case "SGD":
		if o.LR == nil {
			lr = 1e-3
		}
		d, err = NewSGD(params, SGDOptions{lr, o.Momentum, o.Dampening, decay, o.Nesterov, o.Maximize})
	case "Adam":
		d, err = NewAdam(params, adam)
	case "AdamW":
		d, err = NewAdamW(params, adam)
	case "Adagrad":
		d, err = NewAdagrad(params, AdagradOptions{lr, o.LRDecay, decay, o.InitialValue, o.Eps, o.Maximize})
	case "RMSprop":
		d, err = NewRMSprop(params, RMSpropOptions{lr, o.Alpha, o.Eps, decay, o.Momentum, o.Centered, o.Maximize})
	default:
		t.Fatalf("an unknown optimizer, %s", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (c optimizerCase) check(t *testing.T) {
	p := &VectorParam{Value: append([]float32(nil), c.Initial...)}
	d := build(t, c.Optimizer, c.Options, p)
	for i, s := range c.Steps {
		p.Gradient = append([]float32(nil), s.Grad...)
		if err := d.Step(); err != nil {
			t.Fatal(err)
		}
		checkNumbers(t, fmt.Sprintf("%s: weight after step %d", c.Optimizer, i), p.Value, s.Weight, 1e-6)
		state := d.State().Params[0]
		for name, want := range s.State {
			if name == "step" {
				if float32(state.Step) != want[0] {
					t.Errorf("step count %d, want %v", state.Step, want[0])
				}
				continue
			}
			checkNumbers(t, fmt.Sprintf("%s: %s after step %d", c.Optimizer, name, i), state.Slots[name], want, 1e-6)
		}
	}
}

type clipCase struct {
	Op       string
	MaxNorm  figure  `json:"max_norm"`
	NormType *figure `json:"norm_type"`
	Value    figure  `json:"clip_value"`
	Before   []flat  `json:"grads_before"`
	Returned figure  `json:"returned_norm"`
	After    []flat  `json:"grads_after"`
}

func (c clipCase) check(t *testing.T) {
	var params []Param
	var vectors []*VectorParam
	for _, g := range c.Before {
		v := &VectorParam{Value: make([]float32, len(g)), Gradient: append([]float32(nil), g...)}
		params, vectors = append(params, v), append(vectors, v)
	}
	params = append(params, &VectorParam{Value: []float32{1}}) // has no gradient
	switch c.Op {
	case "clip_grad_norm_":
		p := 2.0
		if c.NormType != nil {
			p = float64(*c.NormType)
		}
		if got := ClipNorm(params, float64(c.MaxNorm), p); !near(got, float64(c.Returned), 1e-6) {
			t.Errorf("norm %v, want %v", got, c.Returned)
		}
	case "clip_grad_value_":
		ClipValue(params, float64(c.Value))
	default:
		t.Fatalf("an unknown operation, %s", c.Op)
	}
	for i, v := range vectors {
		checkNumbers(t, fmt.Sprintf("gradient %d", i), v.Gradient, c.After[i], 1e-6)
	}
}
