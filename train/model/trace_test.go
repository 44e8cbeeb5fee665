package model

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// traceRun is one run of trace.json.
type traceRun struct {
	Run, Final string
	Optimizer  struct {
		Name        string
		LR          float64
		Momentum    float64
		WeightDecay *float64 `json:"weight_decay"`
		Betas       []float64
		Eps         float64
		Groups      string `json:"param_groups"`
	}
	Accumulation float64
	MaxGradNorm  *float64 `json:"max_grad_norm"`
	Scheduler    struct {
		Type     string
		Warmup   *float64 `json:"num_warmup_steps"`
		Training *float64 `json:"num_training_steps"`
	}
	LossRule string   `json:"loss_rule"`
	Rounded  *float64 `json:"max_abs_loss_diff_vs_f32"`
	Steps    []traceStep
}

type traceStep struct {
	LR      float64
	Micro   []float64 `json:"micro_losses"`
	Loss    float64
	Norm    json.RawMessage `json:"grad_norm"`
	Items   float64         `json:"num_items_in_batch"`
	Weights map[string]struct {
		Sum   *float64
		L2    float64
		First []float64 `json:"first4"`
	}
}

// TestGoldenTraces trains: losses, norms and weights of every step of every run; of those
// under autocast to bfloat16 the losses, which is what their tolerance is for.
func TestGoldenTraces(t *testing.T) {
	cases := 0
	for _, path := range golden.Glob(t, "train/models/*/trace.json") {
		dir := filepath.Dir(path)
		var trace struct{ Runs []traceRun }
		var data struct {
			Micro []microBatch `json:"micro_batches"`
		}
		golden.JSON(t, path, &trace)
		golden.JSON(t, filepath.Join(dir, "data.json"), &data)
		for _, r := range trace.Runs {
			t.Run(filepath.Base(dir)+"/"+r.Run, func(t *testing.T) {
				cases++
				(&replay{T: t, run: r, m: open(t, dir), micro: data.Micro}).replay(dir)
			})
		}
	}
	golden.Count(t, "train/models", cases)
}

// replay is a run of a trace, again.
type replay struct {
	*testing.T
	run   traceRun
	m     *Model
	micro []microBatch

	recompute bool
	dropout   tensor.RandomSource
}

// param lets an optimizer step a parameter.
type param struct{ *tensor.Parameter }

func (p param) Data() []float32 { return p.Parameter.Data() }
func (p param) Grad() []float32 { return p.Parameter.Grad() }

func (r *replay) optimizer() (optim.Optimizer, []optim.Param) {
	var all, decayed, others []optim.Param
	for _, p := range r.m.Parameters() {
		all = append(all, param{p})
		if len(p.Shape()) > 1 {
			decayed = append(decayed, param{p})
		} else {
			others = append(others, param{p})
		}
	}
	o := r.run.Optimizer
	first := all
	if o.Groups != "" {
		first = decayed
	}
	var d *optim.Descent
	var err error
	if o.Name == "SGD" {
		s := optim.SGDOptions{LR: o.LR, Momentum: o.Momentum}
		if o.WeightDecay != nil {
			s.WeightDecay = *o.WeightDecay
		}
		d, err = optim.NewSGD(first, s)
	} else {
		a := optim.DefaultAdamW()
		a.LR = o.LR
		if len(o.Betas) == 2 {
			a.Beta1, a.Beta2, a.Eps = o.Betas[0], o.Betas[1], o.Eps
		}
		if o.WeightDecay != nil {
			a.WeightDecay = *o.WeightDecay
		}
		d, err = optim.NewAdamW(first, a)
	}
	if err == nil && o.Groups != "" {
		err = d.AddGroup(others, func(g *optim.Group) { g.WeightDecay = 0 })
	}
	if err != nil {
		r.Fatal(err)
	}
	return d, all
}

func (r *replay) replay(dir string) {
	steps, all := r.optimizer()
	spec := optim.ScheduleSpec{Name: r.run.Scheduler.Type}
	for to, from := range map[**int]*float64{&spec.WarmupSteps: r.run.Scheduler.Warmup, &spec.TrainingSteps: r.run.Scheduler.Training} {
		if from != nil {
			n := int(*from)
			*to = &n
		}
	}
	schedule, err := optim.NewScheduler(steps, spec)
	if err != nil {
		r.Fatal(err)
	}
	var o tensor.Options
	if r.run.Rounded != nil {
		o.Autocast = tensor.BFloat16
	}
	tp := tensor.NewTape(o)
	acc := int(r.run.Accumulation)
	for i, step := range r.run.Steps {
		off := 0.0
		for k := range acc {
			off += r.backward(tp, step, k, r.micro[i*acc+k].batch()) / float64(acc)
		}
		if r.run.Rounded != nil {
			tolerance := 2e-2
			if r.m.topK() > 0 {
				tolerance = 6e-2 // experts are chosen by rounded numbers
			}
			r.close("difference of the losses", i, off, 0, tolerance)
		}
		norm := optim.Norm(all, 2)
		if r.run.MaxGradNorm != nil {
			norm = optim.ClipNorm(all, *r.run.MaxGradNorm, 2)
		}
		var want float64
		if json.Unmarshal(step.Norm, &want) == nil && r.run.Rounded == nil {
			r.close("norm", i, norm, want, 5e-5*(1+want))
		}
		r.close("lr", i, steps.Groups()[0].LR, step.LR, 1e-12)
		if err := steps.Step(); err != nil {
			r.Fatal(err)
		}
		if err := schedule.Step(); err != nil {
			r.Fatal(err)
		}
		steps.ZeroGrad()
		if r.run.Rounded == nil {
			r.weights(i, step)
		}
	}
	if r.run.Final != "" && r.run.Rounded == nil {
		r.final(filepath.Join(dir, r.run.Final))
	}
}

// backward runs micro batch k of a step and returns how far its loss is off.
func (r *replay) backward(tp *tensor.Tape, step traceStep, k int, b Batch) float64 {
	opts, scale := Options{Recompute: r.recompute, Dropout: r.dropout}, 1/float32(r.run.Accumulation)
	if strings.Contains(r.run.LossRule, "num_items") {
		opts.Items, scale = step.Items, 1
	}
	loss, err := r.m.Loss(tp, b, opts)
	if err == nil {
		err = tp.Backward(loss, scale)
	}
	if err != nil {
		r.Fatal(err)
	}
	if r.run.Rounded == nil {
		r.close("micro loss", k, float64(loss.Item()), step.Micro[k], 1e-5)
	}
	return float64(loss.Item()) - step.Micro[k]
}

func (r *replay) close(what string, step int, got, want, tolerance float64) {
	r.Helper()
	if d := math.Abs(got - want); !(d <= tolerance) {
		r.Errorf("step %d: %s = %g, want %g: off by %.2g", step, what, got, want, d)
	}
}

// weights compares tensors after a step by their lengths, sums and first elements,
// under the names of checkpoints, of modules or of PEFT.
func (r *replay) weights(i int, step traceStep) {
	all := r.tensors()
	for name, p := range r.m.Parameters() {
		all[name] = p.Data()
		if stem, ok := strings.CutSuffix(name, ".weight"); ok && r.m.Adapted() {
			all["base_model.model."+stem+".default.weight"] = p.Data()
		}
	}
	far := 3e-6
	if r.run.Optimizer.Name != "SGD" {
		far = 3e-4
	}
	for name, want := range step.Weights {
		v, ok := all[name]
		if !ok {
			v, ok = all[strings.Replace(strings.TrimPrefix(name, "base_model.model."), ".base_layer.", ".", 1)]
		}
		if !ok {
			r.Errorf("step %d: no tensor %s", i, name)
			continue
		}
		var sum, squares float64
		for _, x := range v {
			sum, squares = sum+float64(x), squares+float64(x)*float64(x)
		}
		r.close(name+" l2", i, math.Sqrt(squares), want.L2, 1e-4*(1+want.L2))
		if strings.HasSuffix(name, "c_attn.bias") {
			continue // its middle third is noise
		}
		if want.Sum != nil {
			r.close(name+" sum", i, sum, *want.Sum, 1e-5*(1+float64(len(v))))
		}
		for k, w := range want.First {
			r.close(name+" first elements", i, float64(v[k]), w, far)
		}
	}
}

// tensors are the weights by the checkpoint's names.
func (r *replay) tensors() map[string][]float32 {
	named, err := r.m.Checkpoint()
	if err != nil {
		r.Fatal(err)
	}
	all := map[string][]float32{}
	for n := range named {
		b, err := n.Bytes()
		if err != nil {
			r.Fatal(err)
		}
		all[n.Name] = floats(b)
	}
	return all
}

// final compares the weights: of SGD within 3e-6; of AdamW, which turns noise into
// steps, all within 3e-4 and 99.9 % within 2e-5. GPT-2's key bias has no gradient but
// noise, so it may be anywhere 10 steps reach.
func (r *replay) final(path string) {
	want := arrays(r, path)
	total, far := 0, 0
	for name, got := range r.tensors() {
		w := want[name]
		if len(got) != len(w) {
			r.Fatalf("%s has %d elements, want %d", name, len(got), len(w))
		}
		bias := strings.HasSuffix(name, "c_attn.bias")
		for i := range w {
			d := math.Abs(float64(got[i] - w[i]))
			if bias && i >= len(w)/3 && i < len(w)/3*2 {
				if d > 10*r.run.Optimizer.LR {
					r.Errorf("%s[%d] is off by %.2g", name, i, d)
				}
				continue
			}
			limit, near := 3e-6, 3e-6
			if r.run.Optimizer.Name != "SGD" {
				limit, near = 3e-4, 2e-5
			}
			if !(d <= limit) {
				r.Fatalf("%s[%d] = %g, want %g", name, i, got[i], w[i])
			}
			if total++; d > near {
				far++
			}
		}
	}
	if far*1000 > total {
		r.Errorf("%d of %d weights are far", far, total)
	}
}
