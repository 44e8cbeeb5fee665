package optim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every makes one optimizer of each kind, with all it can remember.
var every = map[string]func([]Param) (*Descent, error){
	"SGD": func(p []Param) (*Descent, error) {
		return NewSGD(p, SGDOptions{LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01})
	},
	"Adam":  func(p []Param) (*Descent, error) { return NewAdam(p, AdamOptions{AMSGrad: true, WeightDecay: 0.1}) },
	"AdamW": func(p []Param) (*Descent, error) { return NewAdamW(p, DefaultAdamW()) },
	"Adagrad": func(p []Param) (*Descent, error) {
		return NewAdagrad(p, AdagradOptions{LRDecay: 0.1, Initial: 0.5})
	},
	"RMSprop": func(p []Param) (*Descent, error) {
		return NewRMSprop(p, RMSpropOptions{Momentum: 0.5, Centered: true})
	},
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestSteppingInPartsChangesNothing(t *testing.T) {
	const n = 4*share + 5
	for name, make := range every {
		r := rand.New(rand.NewPCG(1, 2))
		whole := &VectorParam{Value: random(r, n)}
		head := &VectorParam{Value: append([]float32(nil), whole.Value[:100]...)}
		a, b := must(make([]Param{whole})), must(make([]Param{head}))
		for range 3 {
			whole.Gradient = random(r, n)
			head.Gradient = append([]float32(nil), whole.Gradient[:100]...)
			for _, d := range []*Descent{a, b} {
				if err := d.Step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !reflect.DeepEqual(whole.Value[:100], head.Value) {
			t.Errorf("%s: a large parameter is stepped differently from a small one", name)
		}
	}
}

// TestStateBytesAreThoseOfTheState: an optimizer predicts the memory that a step allocates.
func TestStateBytesAreThoseOfTheState(t *testing.T) {
	makers := maps.Clone(every)
	makers["plain SGD"] = func(p []Param) (*Descent, error) { return NewSGD(p, SGDOptions{LR: 0.1}) }
	makers["plain RMSprop"] = func(p []Param) (*Descent, error) { return NewRMSprop(p, RMSpropOptions{}) }
	makers["AdamW8bit"] = func(p []Param) (*Descent, error) { return NewAdamW8bit(p, DefaultAdamW()) }
	makers["Adafactor"] = func(p []Param) (*Descent, error) { return NewAdafactor(p, AdafactorOptions{}) }
	makers["Adafactor with means"] = func(p []Param) (*Descent, error) { return NewAdafactor(p, AdafactorOptions{Beta1: 0.9}) }
	makers["Muon"] = func(p []Param) (*Descent, error) { return NewMuon(p, MuonOptions{}) }
	for name, make := range makers {
		for _, shape := range [][]int{{}, {5}, {5000}, {7, 3}, {70, 90}, {2, 8, 300}} {
			n := 1
			for _, dim := range shape {
				n *= dim
			}
			r := rand.New(rand.NewPCG(1, uint64(n)))
			d := must(make([]Param{&matrixParam{VectorParam{Value: random(r, n), Gradient: random(r, n)}, shape}}))
			if err := d.Step(); err != nil {
				t.Fatal(err)
			}
			held := int64(0)
			for _, slot := range d.State().Params[0].Slots {
				held += 4 * int64(len(slot))
			}
			if said := d.StateBytes(shape...); said != held {
				t.Errorf("%s, %v: says %d bytes, holds %d", name, shape, said, held)
			}
		}
	}
}

func TestALoadedStateContinuesBitForBit(t *testing.T) {
	for name, make := range every {
		r := rand.New(rand.NewPCG(3, 4))
		p, q := &VectorParam{Value: random(r, 7)}, &VectorParam{Value: random(r, 3)}
		d := must(make([]Param{p, q}))
		s := NewLambda(d, Linear(2, 10))
		step := func(d *Descent, s Scheduler, params []*VectorParam, grads [][]float32) {
			for i, v := range params {
				v.Gradient = grads[i]
			}
			if err := errors.Join(d.Step(), s.Step()); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			step(d, s, []*VectorParam{p, q}, [][]float32{random(r, 7), nil}) // q waits
		}
		var saved OptimizerState
		var clock SchedulerState
		if err := errors.Join(through(d.State(), &saved), through(s.State(), &clock)); err != nil {
			t.Fatal(err)
		}
		p2, q2 := &VectorParam{Value: append([]float32(nil), p.Value...)}, &VectorParam{Value: append([]float32(nil), q.Value...)}
		d2 := must(make([]Param{p2, q2}))
		s2 := NewLambda(d2, Linear(2, 10))
		if err := errors.Join(d2.LoadState(saved), s2.LoadState(clock)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			grads := [][]float32{random(r, 7), random(r, 3)}
			step(d, s, []*VectorParam{p, q}, grads)
			step(d2, s2, []*VectorParam{p2, q2}, grads)
		}
		if !reflect.DeepEqual(p.Value, p2.Value) || !reflect.DeepEqual(q.Value, q2.Value) || !reflect.DeepEqual(d.State(), d2.State()) {
			t.Errorf("%s: the loaded optimizer went elsewhere", name)
		}
	}
}

// through sends x through JSON.
func through(x, to any) error {
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

func TestForeignStatesAreRefused(t *testing.T) {
	p := &VectorParam{Value: []float32{1, 2}, Gradient: []float32{1, 1}}
	d := must(NewAdamW([]Param{p}, DefaultAdamW()))
	if err := d.Step(); err != nil {
		t.Fatal(err)
	}
	good := d.State()
	for name, change := range map[string]func(*OptimizerState){
		"rule":       func(s *OptimizerState) { s.Rule = "SGD" },
		"groups":     func(s *OptimizerState) { s.Groups = nil },
		"parameters": func(s *OptimizerState) { s.Groups = []GroupState{{Params: 2}} },
		"too few":    func(s *OptimizerState) { s.Params = nil },
		"lengths":    func(s *OptimizerState) { s.Params = []ParamState{{Slots: map[string][]float32{"exp_avg": {1}}}} },
	} {
		bad := good
		change(&bad)
		if err := d.LoadState(bad); err == nil {
			t.Errorf("a state with other %s was loaded", name)
		}
	}
}

func TestGroupsHaveTheirOwnNumbers(t *testing.T) {
	a := &VectorParam{Value: []float32{1}, Gradient: []float32{1}}
	b := &VectorParam{Value: []float32{1}, Gradient: []float32{1}}
	d := must(NewSGD([]Param{a}, SGDOptions{LR: 0.5, WeightDecay: 1}))
	if err := d.AddGroup([]Param{b}, func(g *Group) { g.LR, g.WeightDecay = 0.25, 0 }); err != nil {
		t.Fatal(err)
	}
	if err := d.Step(); err != nil {
		t.Fatal(err)
	}
	if a.Value[0] != 0 || b.Value[0] != 0.75 {
		t.Errorf("stepped to %v and %v, want 0 and 0.75", a.Value, b.Value)
	}
	if err := d.AddGroup([]Param{a}); err == nil {
		t.Error("a parameter is in two groups")
	}
	if err := d.AddGroup([]Param{nil}); err == nil {
		t.Error("a nil parameter was taken")
	}
	d.ZeroGrad()
	if a.Grad() != nil || b.Grad() != nil {
		t.Error("gradients are left")
	}
	if err := d.Step(); err != nil || b.Value[0] != 0.75 {
		t.Errorf("a step without gradients: %v, %v", b.Value, err)
	}
}

func TestAGradientOfAnotherLengthStepsNothing(t *testing.T) {
	a := &VectorParam{Value: []float32{1}, Gradient: []float32{1}}
	b := &VectorParam{Value: []float32{1}, Gradient: []float32{1, 2}}
	d := must(NewSGD([]Param{a, b}, SGDOptions{LR: 1}))
	if err := d.Step(); err == nil || !strings.Contains(err.Error(), "parameter 1") {
		t.Errorf("error %v", err)
	}
	if a.Value[0] != 1 {
		t.Error("the first parameter was stepped")
	}
}

func TestBadOptimizerOptions(t *testing.T) {
	for name, err := range map[string]error{
		"nesterov without momentum": second(NewSGD(nil, SGDOptions{LR: 1, Nesterov: true})),
		"negative rate":             second(NewSGD(nil, SGDOptions{LR: -1})),
		"rate that want a number":   second(NewSGD(nil, SGDOptions{LR: math.NaN()})),
		"beta of 1":                 second(NewAdam(nil, AdamOptions{Beta2: 1})),
		"negative decay":            second(NewAdamW(nil, AdamOptions{WeightDecay: -1})),
		"negative sum":              second(NewAdagrad(nil, AdagradOptions{Initial: -1})),
		"negative alpha":            second(NewRMSprop(nil, RMSpropOptions{Alpha: -1})),
	} {
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestClippingNormsOfAnyOrder(t *testing.T) {
	for p, want := range map[float64]float64{0: 2, 1: 7, 2: 5, 3: math.Cbrt(91), math.Inf(1): 4, math.Inf(-1): 3} {
		params := []Param{&VectorParam{Gradient: []float32{3}}, &VectorParam{Gradient: []float32{-4}}, &VectorParam{}}
		if got := Norm(params, p); !(math.Abs(got-want) <= 1e-6) {
			t.Errorf("the %v-norm is %v, want %v", p, got, want)
		}
	}
	if got := ClipNorm(nil, 1, 2); got != 0 {
		t.Errorf("the norm of nothing is %v", got)
	}
	v := &VectorParam{Gradient: []float32{float32(math.Inf(1)), 1}}
	if _, err := ClipNormFinite([]Param{v}, 1, 2); !errors.Is(err, ErrNotFinite) || v.Gradient[1] != 1 {
		t.Errorf("error %v, gradients %v", err, v.Gradient)
	}
}

// The rates and momenta of this test were printed by torch 2.15.
func TestOneCycleFollowsTorch(t *testing.T) {
	cos := []float64{0.0003999999999999993, 0.009944154354509118, 0.00811745653949763, 0.00462637102666975, 0.001334775301888306, 4e-08}
	for _, c := range []struct {
		o             OneCycleOptions
		rates, moment []float64
	}{
		{OneCycleOptions{}, cos, []float64{0.95, 0.8505584586887436, 0.8688255099070633, 0.9037365046793212, 0.9366525935914912, 0.95}},
		{OneCycleOptions{FixedMomentum: true}, cos, []float64{0.9, 0.9, 0.9, 0.9, 0.9, 0.9}},
		{OneCycleOptions{ThreePhase: true, Linear: true},
			[]float64{0.0004, 0.007599999999999997, 0.00035294588235294116, 0.0002353105882352941, 0.00011767529411764704, 3.999999999997929e-08},
			[]float64{0.95, 0.875, 0.95, 0.95, 0.95, 0.95}},
	} {
		d := must(NewSGD([]Param{&VectorParam{}}, SGDOptions{LR: 0.1, Momentum: 0.9}))
		c.o.MaxLR, c.o.TotalSteps = 0.01, 6
		s := must(NewOneCycle(d, c.o))
		for i := range c.rates {
			if g := d.Groups()[0]; !(math.Abs(g.LR-c.rates[i]) <= 1e-15) || !(math.Abs(g.Momentum-c.moment[i]) <= 1e-12) {
				t.Errorf("step %d: rate %v, momentum %v; want %v, %v", i, g.LR, g.Momentum, c.rates[i], c.moment[i])
			}
			if err := s.Step(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Step(); err == nil {
			t.Error("a step beyond the cycle")
		}
	}
}

func TestAPreparedCycleStopsAtItsEnd(t *testing.T) {
	d := must(NewSGD([]Param{&VectorParam{}}, SGDOptions{LR: 0.1}))
	c := must(NewOneCycle(d, OneCycleOptions{MaxLR: 1, TotalSteps: 3}))
	s := &PreparedScheduler{Scheduler: c, World: 2}
	for range 5 {
		if err := s.Step(); err != nil {
			t.Fatal(err)
		}
	}
	if c.LastEpoch() != 3 {
		t.Errorf("%d steps of 3", c.LastEpoch())
	}
	sync := false
	s = &PreparedScheduler{Scheduler: c, Adjust: true, Syncs: func() bool { return sync }}
	before := c.StepCount()
	if err := s.Step(); err != nil || c.StepCount() != before+1 || c.LastEpoch() != 3 {
		t.Errorf("adjusted to %d at %d (%v)", c.StepCount(), c.LastEpoch(), err)
	}
}

func TestPlateausRememberTheirBest(t *testing.T) {
	o := DefaultPlateau()
	o.Patience, o.Cooldown, o.MinLR = 1, 2, []float64{0.001}
	metrics := []float64{3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1}
	a := must(NewSGD([]Param{&VectorParam{}}, SGDOptions{LR: 1}))
	b := must(NewSGD([]Param{&VectorParam{}}, SGDOptions{LR: 1}))
	p, q := must(NewPlateau(a, o)), must(NewPlateau(b, o))
	for i, m := range metrics {
		var s SchedulerState
		if err := errors.Join(through(q.State(), &s), q.LoadState(s)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Step(m), q.Step(m)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(p.LastLR()) != fmt.Sprint(q.LastLR()) {
			t.Fatalf("metric %d: %v, and %v reloaded", i, p.LastLR(), q.LastLR())
		}
	}
	if p.LastLR()[0] > 0.01 {
		t.Errorf("the rate is still %v", p.LastLR())
	}
	if p.Step() == nil || NewLambda(a, Constant()).Step(1) == nil {
		t.Error("metrics are taken where they do not belong")
	}
}

func TestBadSchedules(t *testing.T) {
	warm, total := 1, 10
	d := must(NewSGD([]Param{&VectorParam{}}, SGDOptions{LR: 0.1}))
	for text, s := range map[string]ScheduleSpec{
		"unknown name":     {Name: "lineal", WarmupSteps: &warm, TrainingSteps: &total},
		"num_warmup_steps": {Name: "cosine", TrainingSteps: &total},
		"no option \"cycles\", want one of num_cycles": {Name: "cosine", WarmupSteps: &warm, TrainingSteps: &total, Options: map[string]any{"cycles": 1.0}},
		"want a number":         {Name: "cosine", WarmupSteps: &warm, TrainingSteps: &total, Options: map[string]any{"num_cycles": "two"}},
		"whole number":          {Name: "inverse_sqrt", WarmupSteps: &warm, Options: map[string]any{"timescale": 1.5}},
		"unknown shape":         {Name: "warmup_stable_decay", WarmupSteps: &warm, TrainingSteps: &total, Options: map[string]any{"num_decay_steps": 2.0, "decay_type": "steep"}},
		"requires num_decay":    {Name: "warmup_stable_decay", WarmupSteps: &warm, TrainingSteps: &total},
		"requires num_training": {Name: "warmup_stable_decay", WarmupSteps: &warm, Options: map[string]any{"num_decay_steps": 2.0}},
		"only one of":           {Name: "cosine_with_min_lr", WarmupSteps: &warm, TrainingSteps: &total, Options: map[string]any{"min_lr": 0.0, "min_lr_rate": 0.1}},
		"want one below 1":      {Name: "reduce_lr_on_plateau", Options: map[string]any{"factor": 2.0}},
		"mode \"most\"":         {Name: "reduce_lr_on_plateau", Options: map[string]any{"mode": "most"}},
		"got 2 minimum rates":   {Name: "reduce_lr_on_plateau", Options: map[string]any{"min_lr": []any{0.1, 0.2}}},
		"no option \"tolerance\", want one of cooldown, eps, factor, min_lr, mode, patience, threshold, threshold_mode": {Name: "reduce_lr_on_plateau", Options: map[string]any{"tolerance": 2.0}},
	} {
		if _, err := NewScheduler(d, s); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want one about %s", err, text)
		}
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		r    RunLength
		want StepCounts
		err  error
	}{
		{r: RunLength{Samples: 100, BatchSize: 8, World: 2, RealBatch: 64, Strategy: ByEpochs, Epochs: 3}, want: StepCounts{38, 38, 4, 64}},
		{r: RunLength{BatchSize: 8, World: 2, Accumulation: 3, Strategy: BySteps, Steps: 10}, want: StepCounts{10, 20, 3, 48}},
		{r: RunLength{BatchSize: 8, World: 2, RealBatch: 40, Strategy: BySteps}, err: ErrRealBatch},
	} {
		got, err := Count(c.r)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: %+v, %v; want %+v, %v", c.r, got, err, c.want, c.err)
		}
	}
	for _, r := range []RunLength{{}, {BatchSize: 1, Strategy: "hours"}} {
		if _, err := Count(r); err == nil {
			t.Errorf("%+v was counted", r)
		}
	}
}

func BenchmarkAdamW(b *testing.B) {
	const n = 1 << 22
	p := &VectorParam{Value: make([]float32, n), Gradient: make([]float32, n)}
	d := must(NewAdamW([]Param{p}, DefaultAdamW()))
	b.SetBytes(4 * n)
	for b.Loop() {
		if err := d.Step(); err != nil {
			b.Fatal(err)
		}
	}
}
