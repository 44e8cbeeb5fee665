package train

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// resumeCase is the checkpoint that the reference saved in the middle of a window, decoded.
type resumeCase struct {
	Losses    []float64 `json:"micro_losses_before_save"`
	Step      int       `json:"accelerator_step_saved"`
	Loaded    int       `json:"accelerator_step_after_load"`
	Counter   int       `json:"custom_counter_after_load"`
	LastEpoch int       `json:"scheduler_last_epoch_after_load"`
	Pending   bool      `json:"pending_gradients_saved"`
	Optimizer struct {
		State map[string]struct {
			Step float64
			M    any `json:"exp_avg"`
			V    any `json:"exp_avg_sq"`
		}
		Groups []struct {
			LR        float64
			InitialLR float64 `json:"initial_lr"`
			Decay     float64 `json:"weight_decay"`
			Betas     []float64
			Params    []int
		} `json:"param_groups"`
	} `json:"optimizer.bin"`
	Scheduler struct {
		LastEpoch int       `json:"last_epoch"`
		StepCount int       `json:"_step_count"`
		LastLR    []float64 `json:"_last_lr"`
	} `json:"scheduler.bin"`
	Custom map[string]float64 `json:"custom_checkpoint_0.pkl"`
}

// flattened is an array of any depth, flat, with its shape.
func flattened(v any) (flat []float32, shape []int) {
	list, ok := v.([]any)
	if !ok {
		x, _ := v.(float64)
		return []float32{float32(x)}, nil
	}
	for i, x := range list {
		part, inner := flattened(x)
		flat = append(flat, part...)
		if i == 0 {
			shape = append([]int{len(list)}, inner...)
		}
	}
	return flat, shape
}

func TestGoldenCheckpointResume(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/checkpoint/semantics.json") {
		var file struct{ Resume *resumeCase }
		if golden.JSON(t, path, &file); file.Resume == nil {
			continue
		}
		n++
		t.Run("resume", func(t *testing.T) { file.Resume.check(t, exampleWeights(t, filepath.Dir(path))) })
	}
	golden.Count(t, "train/checkpoint/resume", n)
}

// exampleWeights are those of the saved model, if they are there.
func exampleWeights(t *testing.T, dir string) *loader.Checkpoint {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "model.safetensors"))
	if err != nil || len(files) == 0 {
		return nil
	}
	ck, err := loader.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ck.Close() })
	return ck
}

// model has the parameters that the optimizer's state is of, and the example's weights.
func (c *resumeCase) model(t *testing.T, ck *loader.Checkpoint) *listed {
	t.Helper()
	l := &listed{}
	names := []string{}
	if ck != nil {
		names = slices.Collect(ck.Names())
		// The order of the module's parameters is that of layers, weight before bias.
		slices.SortStableFunc(names, func(a, b string) int {
			if a[:1] != b[:1] {
				return int(a[0]) - int(b[0])
			}
			return len(b) - len(a)
		})
	}
	for i := range len(c.Optimizer.State) {
		flat, shape := flattened(c.Optimizer.State[strconv.Itoa(i)].M)
		name := strconv.Itoa(i)
		if i < len(names) {
			name = names[i]
			saved, _ := ck.Lookup(name)
			b, err := saved.Bytes()
			if err != nil || !slices.Equal(saved.Shape, shape) {
				t.Fatalf("%s has shape %v, its moments %v (%v)", name, saved.Shape, shape, err)
			}
			flat = checkpoint.Floats(b)
		}
		l.names, l.params = append(l.names, name), append(l.params, tensor.NewParameter(flat, shape...))
	}
	return l
}

type counter struct {
	N int `json:"n"`
}

// check puts the reference's state into a run, saves and loads it, and looks at what
// was written and what came back.
func (c *resumeCase) check(t *testing.T, ck *loader.Checkpoint) {
	project := ProjectConfiguration{ProjectDir: t.TempDir(), AutomaticCheckpointNaming: true}
	first := c.run(t, c.model(t, ck), project)
	first.train(t, c)
	dir, err := first.acc.SaveState(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c.checkFiles(t, dir)
	again := c.run(t, c.model(t, nil), project)
	for i, p := range again.model.params {
		again.model.names[i] = first.model.names[i]
		clear(p.Data())
	}
	again.acc.SetSeed(123, false)
	if err := again.acc.LoadState(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := again.acc.rank.Position.Step; got != c.Loaded {
		t.Errorf("the step is %d, want %d", got, c.Loaded)
	}
	if got := again.sched.State(); got.LastEpoch != c.LastEpoch || again.counter.N != c.Counter {
		t.Errorf("the schedule is at %d, the counter at %d; want %d, %d", got.LastEpoch, again.counter.N, c.LastEpoch, c.Counter)
	}
	if again.acc.SaveIteration() != 0 {
		t.Errorf("loading moved the iteration to %d", again.acc.SaveIteration())
	}
	if *first.acc.Generator() != *again.acc.Generator() {
		t.Error("the generators differ")
	}
	for i, p := range again.model.params {
		if !slices.Equal(p.Data(), first.model.params[i].Data()) || (p.Grad() != nil) != c.Pending {
			t.Errorf("%s is %v with gradient %v, want %v", again.model.names[i], p.Data(), p.Grad(), first.model.params[i].Data())
		}
	}
	if !reflect.DeepEqual(first.adam.State(), again.adam.State()) {
		t.Error("the optimizers differ")
	}
}

type resumeRun struct {
	acc     *Accelerator
	model   *listed
	adam    *optim.Descent
	opt     optim.Optimizer
	sched   optim.Scheduler
	counter *counter
}

func (c *resumeCase) run(t *testing.T, m *listed, project ProjectConfiguration) *resumeRun {
	t.Helper()
	acc, err := New(Config{GradientAccumulationSteps: 2, Project: project})
	if err != nil {
		t.Fatal(err)
	}
	g := c.Optimizer.Groups[0]
	adam, err := optim.NewAdamW(Params(m), optim.AdamOptions{LR: g.InitialLR, WeightDecay: g.Decay})
	if err != nil {
		t.Fatal(err)
	}
	r := &resumeRun{acc: acc, model: m, adam: adam, opt: adam, counter: &counter{}}
	r.sched = optim.NewLambda(adam, func(n int) float64 { return 1 / float64(1+n) })
	if err := acc.Prepare(m, &r.opt, &r.sched); err != nil {
		t.Fatal(err)
	}
	if err := acc.RegisterForCheckpointing(r.counter); err != nil {
		t.Fatal(err)
	}
	return r
}

// train takes as many micro steps as the reference, and then its optimizer's state.
func (r *resumeRun) train(t *testing.T, c *resumeCase) {
	t.Helper()
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	weights := make([][]float32, len(r.model.params))
	for i, p := range r.model.params {
		weights[i] = slices.Clone(p.Data())
	}
	for range c.Losses {
		err := r.acc.Accumulate(t.Context(), func(ctx context.Context) error {
			loss := tape.Scalar(0)
			for _, p := range r.model.params {
				loss = tape.Add(loss, tape.Sum(tape.Use(p)))
			}
			r.counter.N++
			r.acc.Generator().Float32()
			if err := r.acc.Backward(ctx, loss); err != nil {
				return err
			}
			if err := r.opt.Step(); err != nil {
				return err
			}
			r.opt.ZeroGrad()
			return r.sched.Step()
		}, r.model)
		if err != nil {
			t.Fatal(err)
		}
	}
	state := r.adam.State()
	for i := range state.Params {
		want := c.Optimizer.State[strconv.Itoa(i)]
		state.Params[i].Step = int64(want.Step)
		state.Params[i].Slots["exp_avg"], _ = flattened(want.M)
		state.Params[i].Slots["exp_avg_sq"], _ = flattened(want.V)
		copy(r.model.params[i].Data(), weights[i])
	}
	if err := r.adam.LoadState(state); err != nil {
		t.Fatal(err)
	}
}

// checkFiles compares the contents of the files with the reference's.
func (c *resumeCase) checkFiles(t *testing.T, dir string) {
	t.Helper()
	err := checkpoint.ReadOptimizer(filepath.Join(dir, checkpoint.OptimizerFile), func(state optim.OptimizerState) error {
		for i, p := range state.Params {
			want := c.Optimizer.State[strconv.Itoa(i)]
			m, _ := flattened(want.M)
			v, _ := flattened(want.V)
			if float64(p.Step) != want.Step || !slices.Equal(p.Slots["exp_avg"], m) || !slices.Equal(p.Slots["exp_avg_sq"], v) {
				t.Errorf("optimizer, parameter %d: %+v, want %+v", i, p, want)
			}
		}
		for i, g := range c.Optimizer.Groups {
			got := state.Groups[i]
			if !(math.Abs(got.LR-g.LR) <= 1e-12) || got.InitialLR != g.InitialLR || got.WeightDecay != g.Decay || got.Momentum != g.Betas[0] || got.Params != len(g.Params) {
				t.Errorf("optimizer, group %d: %+v, want %+v", i, got, g)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &checkpoint.Reading{Dir: dir}
	sched, err := checkpoint.ReadJSON[optim.SchedulerState](r, checkpoint.SchedulerFile)
	if want := c.Scheduler; err != nil || sched.LastEpoch != want.LastEpoch || sched.StepCount != want.StepCount || !slices.Equal(sched.LastLR, want.LastLR) {
		t.Errorf("schedule %+v, want %+v (%v)", sched, want, err)
	}
	own, err := checkpoint.ReadJSON[struct{ Step int }](r, checkpoint.RankFile(0))
	if err != nil || own.Step != c.Step {
		t.Errorf("the step is %d, want %d (%v)", own.Step, c.Step, err)
	}
	custom, err := checkpoint.ReadJSON[map[string]float64](r, checkpoint.CustomFile(0))
	if err != nil || !reflect.DeepEqual(custom, c.Custom) {
		b, _ := json.Marshal(custom)
		t.Errorf("the custom object is %s, want %v (%v)", b, c.Custom, err)
	}
}
