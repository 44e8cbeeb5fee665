package optim

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

func TestGoldenMixedPrecision(t *testing.T) {
	golden.Count(t, "train/mixed_precision/grad_scaler", each(t, "train/mixed_precision/grad_scaler.json", scalerCase.check))
	n := 0
	for _, path := range golden.Glob(t, "train/mixed_precision/rounding.json") {
		var file struct {
			From flat `json:"float32"`
			BF16 flat `json:"bf16_as_float32"`
			FP16 flat `json:"fp16_as_float32"`
		}
		golden.JSON(t, path, &file)
		n++
		t.Run("rounding", func(t *testing.T) {
			for i, x := range file.From {
				if got := BFloat16(x); !same(got, file.BF16[i]) {
					t.Errorf("bfloat16 of %v is %v, want %v", x, got, file.BF16[i])
				}
				if got := Float16(x); !same(got, file.FP16[i]) {
					t.Errorf("float16 of %v is %v, want %v", x, got, file.FP16[i])
				}
			}
		})
	}
	golden.Count(t, "train/mixed_precision/rounding", n)
}

func same(a, b float32) bool {
	return a != a && b != b || a == b && math.Signbit(float64(a)) == math.Signbit(float64(b))
}

type scalerCase struct {
	Name   string
	Scaler struct {
		Init     float64 `json:"init_scale"`
		Growth   float64 `json:"growth_factor"`
		Backoff  float64 `json:"backoff_factor"`
		Interval float64 `json:"growth_interval"`
	}
	Optimizer struct {
		optimizerOptions
		Name string
	}
	Clip      *float64
	ClipOrder *string `json:"clip_order"`
	Initial   flat    `json:"initial_weight"`
	Steps     []struct {
		ScaleBefore float64 `json:"scale_before"`
		Scaled      flat    `json:"scaled_grad"`
		LR          float64
		Norm        *figure `json:"grad_norm_returned"`
		Skipped     bool    `json:"step_was_skipped"`
		ScaleAfter  float64 `json:"scale_after"`
		Growth      float64 `json:"growth_tracker_after"`
		Epoch       float64 `json:"scheduler_last_epoch"`
		Weight      flat    `json:"weight_after"`
	}
}

func (c scalerCase) check(t *testing.T) {
	name := map[string]string{"sgd": "SGD", "adamw": "AdamW", "adam": "Adam"}[c.Optimizer.Name]
	w := &VectorParam{Value: append([]float32(nil), c.Initial...)}
	params := []Param{w}
	d := build(t, name, c.Optimizer.optimizerOptions, w)
	scaler, err := NewScaler(ScalerOptions{c.Scaler.Init, c.Scaler.Growth, c.Scaler.Backoff, int(c.Scaler.Interval)})
	if err != nil {
		t.Fatal(err)
	}
	o := &Prepared{Optimizer: d, Scaler: scaler}
	s := &PreparedScheduler{Scheduler: NewLambda(d, func(step int) float64 { return 1 / float64(1+step) }), Optimizers: []*Prepared{o}}
	for i, want := range c.Steps {
		where := fmt.Sprintf("%s, step %d", c.Name, i)
		if float64(scaler.Scale()) != want.ScaleBefore || !near(s.LastLR()[0], want.LR, 1e-12) {
			t.Errorf("%s: scale %v, rate %v; want %v, %v", where, scaler.Scale(), s.LastLR(), want.ScaleBefore, want.LR)
		}
		w.Gradient = append([]float32(nil), want.Scaled...)
		if c.Clip != nil {
			if c.ClipOrder != nil && *c.ClipOrder == "unscale_first" {
				if err := scaler.Unscale(d); err != nil {
					t.Fatal(err)
				}
			}
			if norm := ClipNorm(params, *c.Clip, 2); want.Norm != nil && !near(norm, float64(*want.Norm), 1e-6) {
				t.Errorf("%s: norm %v, want %v", where, norm, *want.Norm)
			}
		}
		if err := o.Step(); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(); err != nil {
			t.Fatal(err)
		}
		st := scaler.State()
		if o.StepWasSkipped() != want.Skipped || st.Scale != want.ScaleAfter || st.GrowthTracker != int(want.Growth) || s.State().LastEpoch != int(want.Epoch) {
			t.Errorf("%s: skipped %v, %+v, schedule at %d; want %+v", where, o.StepWasSkipped(), st, s.State().LastEpoch, want)
		}
		checkNumbers(t, where, w.Value, want.Weight, 1e-6)
	}
}

func TestAScalerIsUsedInOrder(t *testing.T) {
	w := &VectorParam{Value: []float32{1}, Gradient: []float32{65536}}
	d := must(NewSGD([]Param{w}, SGDOptions{LR: 1}))
	s := must(NewScaler(ScalerOptions{}))
	if err := s.Update(); !errors.Is(err, ErrNothingChecked) {
		t.Errorf("update of nothing: %v", err)
	}
	if err := s.Unscale(d); err != nil {
		t.Fatal(err)
	}
	if err := s.Unscale(d); !errors.Is(err, ErrUnscaled) {
		t.Errorf("unscaled twice: %v", err)
	}
	if ok, err := s.Step(d); !ok || err != nil || w.Value[0] != 0 {
		t.Errorf("stepped %v, %v, to %v", ok, err, w.Value)
	}
	if _, err := s.Step(d); !errors.Is(err, ErrStepped) {
		t.Errorf("stepped twice: %v", err)
	}
	if err := s.Update(); err != nil {
		t.Error(err)
	}
	again := must(NewScaler(ScalerOptions{InitialScale: 3}))
	if err := again.LoadState(s.State()); err != nil || again.State() != s.State() {
		t.Errorf("loaded %+v, want %+v (%v)", again.State(), s.State(), err)
	}
	if err := again.LoadState(ScalerState{Scale: -1}); err == nil {
		t.Error("a negative scale was loaded")
	}
	if _, err := NewScaler(ScalerOptions{BackoffFactor: 2}); err == nil {
		t.Error("a scaler that backs off upwards")
	}
}

func TestAScaleDoesNotGrowToInfinity(t *testing.T) {
	w := &VectorParam{Value: []float32{1}, Gradient: []float32{0}}
	d := must(NewSGD([]Param{w}, SGDOptions{LR: 1}))
	s := must(NewScaler(ScalerOptions{InitialScale: math.Ldexp(1, 127), GrowthInterval: 1}))
	for range 3 {
		if _, err := s.Step(d); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(); err != nil {
			t.Fatal(err)
		}
	}
	if float64(s.Scale()) != math.Ldexp(1, 127) {
		t.Errorf("the scale is %v", s.Scale())
	}
}

func TestEveryHalfRoundsToItself(t *testing.T) {
	for bits := range 0x7c00 {
		var x float32
		if e := bits >> 10; e == 0 {
			x = float32(math.Ldexp(float64(bits), -24))
		} else {
			x = float32(math.Ldexp(float64(bits&0x3ff|0x400), e-25))
		}
		if Float16(x) != x || Float16(-x) != -x {
			t.Fatalf("half %#x (%v) rounds to %v", bits, x, Float16(x))
		}
	}
	if !math.IsInf(float64(Float16(65520)), 1) || Float16(65519) != 65504 || Float16(float32(math.Ldexp(1, -25))) != 0 {
		t.Error("the edges of float16 round wrongly")
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func TestHalvesHaveBits(t *testing.T) {
	for x, want := range map[float32]uint16{0: 0, 1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 1e9: 0x7c00, 6.1035156e-05: 0x0400,
		6.0975552e-05: 0x03ff, 5.9604645e-08: 1, 0.33325195: 0x3555} {
		if got := Float16Bits(x); got != want {
			t.Errorf("%v is %#04x, want %#04x", x, got, want)
		}
	}
	if got := Float16Bits(float32(math.NaN())); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
		t.Errorf("NaN is %#04x", got)
	}
}

// TestOptimizersShareAScale: two optimizers that one scaler steps divide by what the loss
// was multiplied by, whichever overflowed, and the scale moves once.
func TestOptimizersShareAScale(t *testing.T) {
	s := must(NewScaler(ScalerOptions{InitialScale: 4, GrowthInterval: 2}))
	weights := []*VectorParam{{Value: []float32{1}}, {Value: []float32{1}}}
	var all []*Prepared
	for _, w := range weights {
		all = append(all, &Prepared{Optimizer: must(NewSGD([]Param{w}, SGDOptions{LR: 1})), Scaler: s, Peers: func() []*Prepared { return all }})
	}
	for step, c := range []struct {
		grads, want []float32
		scale       float32
	}{
		{[]float32{4, 8}, []float32{0, -1}, 4},
		{[]float32{float32(math.Inf(1)), 4}, []float32{0, -2}, 2},
		{[]float32{2, 2}, []float32{-1, -3}, 2},
		{[]float32{2, 2}, []float32{-2, -4}, 4},
	} {
		for i, w := range weights {
			w.Gradient = []float32{c.grads[i]}
			if err := s.Unscale(all[i].Optimizer); err != nil { // as clipping does
				t.Fatal(err)
			}
		}
		for _, o := range all {
			if err := o.Step(); err != nil {
				t.Fatal(err)
			}
		}
		for i, w := range weights {
			if w.Value[0] != c.want[i] {
				t.Errorf("step %d: weight %d is %v, want %v", step, i, w.Value[0], c.want[i])
			}
		}
		if s.Scale() != c.scale || all[0].StepWasSkipped() != math.IsInf(float64(c.grads[0]), 0) || all[1].StepWasSkipped() {
			t.Errorf("step %d: scale %v, skipped %v %v", step, s.Scale(), all[0].StepWasSkipped(), all[1].StepWasSkipped())
		}
	}
	for range 2 { // the second alone, twice
		weights[1].Gradient = []float32{s.Scale()}
		if err := all[1].Step(); err != nil {
			t.Fatal(err)
		}
	}
	if weights[1].Value[0] != -6 {
		t.Errorf("alone it came to %v", weights[1].Value)
	}
}
