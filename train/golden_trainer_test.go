package train

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

func TestGoldenTrainAStep(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/seeds/train_a_step (Trainer)", n) })
	var steps struct{ Cases []stepCase }
	golden.JSON(t, golden.Path(t, "train/seeds/train_a_step.json"), &steps)
	for _, c := range steps.Cases {
		n++
		t.Run(c.Name, func(t *testing.T) { report(t, c.trainer(t.Context())) })
	}
}

// trainer is the case as a Trainer runs it.
func (c *stepCase) trainer(ctx context.Context) error {
	return Launch(ctx, int(c.World), func(ctx context.Context, w *World) error {
		want := &c.Ranks[w.Rank()]
		a, err := New(Config{World: w, GradientAccumulationSteps: int(c.Told), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		m, tape := newMLP(&c.Data.Init), tensor.NewTape(tensor.Options{Threads: 1})
		sgd, err := optim.NewSGD(Params(m), optim.SGDOptions{LR: c.Optimizer.LR})
		if err != nil {
			return err
		}
		step := 0
		args := TrainingArguments{Unit: Batches, Strategy: c.Strategy, GradientAccumulationSteps: int(c.Window),
			MaxGradNorm: float64(c.MaxNorm), Schedule: c.Scheduler.Type, WarmupSteps: c.Scheduler.Warmup, LogSteps: -1, EvalSteps: -1, SaveSteps: -1}
		if c.Strategy == optim.BySteps {
			args.MaxSteps = int(want.TrainingSteps)
		} else {
			args.Epochs = c.Epochs
		}
		trainer, err := NewTrainer(TrainerConfig[[]int]{Accelerator: a, Model: m, Optimizer: sgd, Arguments: args,
			Train: indices(int(c.Samples), int(c.BatchSize)),
			ComputeLoss: func(_ context.Context, ids []int) (*tensor.Tensor, error) {
				var x []float32
				var y []int
				for _, id := range ids {
					x, y = append(x, c.Data.X[id]...), append(y, c.Data.Y[id])
				}
				return m.loss(tape, x, len(c.Data.X[0]), y), nil
			},
			Callbacks: []Callback{OnEvent(StepEnd, func(_ context.Context, moment *Moment) error {
				if step == len(want.Steps) {
					return fmt.Errorf("more than %d steps", step)
				}
				step++
				return want.Steps[step-1].check(moment, m)
			})}})
		if err != nil {
			return err
		}
		if err := check("steps to schedule", &want.ScheduleSteps, float64(trainer.ScheduleSteps())); err != nil {
			return err
		}
		if _, err := trainer.Train(ctx); err != nil {
			return err
		}
		var w1, w2 []float64
		for _, v := range slices.Concat(want.Final.W1...) {
			w1 = append(w1, float64(v))
		}
		for _, v := range slices.Concat(want.Final.W2...) {
			w2 = append(w2, float64(v))
		}
		return first(check("micro steps", want.Micro, step), check("steps", new(len(want.Steps)), step), nearAll("fc1.weight", w1, m.w1.Data()), nearAll("fc2.weight", w2, m.w2.Data()))
	})
}

func (w *stepTrace) check(moment *Moment, m *mlp) error {
	r := moment.Result
	ids, _ := moment.Batch.([]int)
	err := first(sameFloats("batch", w.IDs, ids), check("whether to synchronize", w.ShouldSync, r.Synced), near("loss", w.Loss, r.Loss),
		near("norm of the weights", w.WeightNorm, r.WeightNorm), near("learning rate", w.LR, r.LR), nearAll("fc2.bias", w.B2, m.b2.Data()),
		check("norms before clipping are known", new(w.Pre != nil), r.Synced))
	if err == nil && r.Synced {
		err = first(near("norm before clipping", w.Pre, r.GradNormPreClip), near("norm after clipping", w.Post, r.GradNormPostClip))
	}
	if err != nil {
		return fmt.Errorf("step %d: %w", r.GlobalStep, err)
	}
	return nil
}

// trainerCase is a run of transformers' Trainer: y = 2x fitted by w*x, begun at 1.
type trainerCase struct {
	N            float64
	BatchSize    float64 `json:"per_device_train_batch_size"`
	Accumulation float64 `json:"gradient_accumulation_steps"`
	Epochs       float64 `json:"num_train_epochs"`
	Limit        float64 `json:"max_steps_arg"`
	Warmup       float64 `json:"warmup_steps"`
	DropLast     bool    `json:"dataloader_drop_last"`
	MaxSteps     float64 `json:"state_max_steps"`
	GlobalStep   float64 `json:"global_step"`
	Last         float64 `json:"scheduler_last_epoch"`
	Epoch        float64
	Log          []struct {
		Step  float64 `json:"global_step"`
		Loss  float64
		Norm  float64 `json:"grad_norm"`
		LR    float64 `json:"learning_rate"`
		Epoch float64
	}
	Weight float64 `json:"final_w"`
}

func TestGoldenTrainerCounts(t *testing.T) {
	var runs struct{ Cases []trainerCase }
	golden.JSON(t, golden.Path(t, "train/schedulers/trainer_counts.json"), &runs)
	for i, c := range runs.Cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) { report(t, c.run(t.Context())) })
	}
	golden.Count(t, "train/schedulers/trainer_counts", len(runs.Cases))
}

// fitting is a Trainer of y = 2x by w*x.
func fitting(a *Accelerator, samples, batch int, drop bool, args TrainingArguments, callbacks ...Callback) (*Trainer[[]int], *tensor.Parameter, error) {
	c, w, err := fittingConfig(a, samples, batch, drop, args, callbacks...)
	if err != nil {
		return nil, nil, err
	}
	t, err := NewTrainer(c)
	return t, w, err
}

func fittingConfig(a *Accelerator, samples, batch int, drop bool, args TrainingArguments, callbacks ...Callback) (TrainerConfig[[]int], *tensor.Parameter, error) {
	var c TrainerConfig[[]int]
	w, tape := tensor.NewParameter([]float32{1}, 1, 1), tensor.NewTape(tensor.Options{Threads: 1})
	o := optim.DefaultAdamW()
	o.WeightDecay = 0
	adam, err := optim.NewAdamW(Params(w), o)
	if err != nil {
		return c, nil, err
	}
	numbers := make(data.Slice[int], samples)
	for i := range numbers {
		numbers[i] = i
	}
	load := func() *data.Loader[[]int] {
		l, e := data.NewLoader(numbers, data.Samples[int], data.Options{BatchSize: batch, DropLast: drop})
		err = first(err, e)
		return l
	}
	c = TrainerConfig[[]int]{Accelerator: a, Model: w, Optimizer: adam, Train: load(), Eval: load(), Arguments: args, Callbacks: callbacks,
		ComputeLoss: func(_ context.Context, ids []int) (*tensor.Tensor, error) {
			x, y := make([]float32, len(ids)), make([]float32, len(ids))
			for i, id := range ids {
				x[i], y[i] = float32(id), 2*float32(id)
			}
			out := tape.Linear(tape.Input(x, len(x), 1), tape.Use(w), nil)
			return tape.MSE(out, tape.Input(y, len(y), 1), tensor.Mean), nil
		}}
	return c, w, err
}

// quiet is an accelerator that logs nothing.
func quiet(w *World) (*Accelerator, error) {
	return New(Config{World: w, Logger: slog.New(slog.DiscardHandler)})
}

func (c *trainerCase) run(ctx context.Context) error {
	a, err := quiet(nil)
	if err != nil {
		return err
	}
	args := TrainingArguments{Epochs: c.Epochs, GradientAccumulationSteps: int(c.Accumulation), MaxGradNorm: 1,
		Schedule: "linear", WarmupSteps: int(c.Warmup), LogSteps: 1, EvalSteps: -1, SaveSteps: -1}
	if c.Limit > 0 {
		args.MaxSteps = int(c.Limit)
	}
	t, w, err := fitting(a, int(c.N), int(c.BatchSize), c.DropLast, args)
	if err != nil {
		return err
	}
	if _, err := t.Train(ctx); err != nil {
		return err
	}
	moved := t.Scheduler().(*optim.PreparedScheduler).State().LastEpoch
	err = first(check("max steps", &c.MaxSteps, float64(t.State().MaxSteps)), check("steps", &c.GlobalStep, float64(t.State().GlobalStep)),
		check("the schedule's steps", &c.Last, float64(moved)), near("epoch", &c.Epoch, t.State().Epoch), near("weight", &c.Weight, float64(w.Data()[0])))
	if err != nil {
		return err
	}
	for i, want := range c.Log {
		got := t.State().LogHistory[i]
		number := func(name string) float64 { v, _ := got[name].(float64); return v }
		step, _ := got["step"].(int)
		err := first(check("step", &want.Step, float64(step)), near("loss", &want.Loss, number("loss")), near("norm", &want.Norm, number("grad_norm")),
			near("learning rate", &want.LR, number("learning_rate")), near("epoch", &want.Epoch, number("epoch")))
		if err != nil {
			return fmt.Errorf("log %d: %w", i, err)
		}
	}
	return check("number of logs", new(len(c.Log)+1), len(t.State().LogHistory)) // and the summary
}

// TestGoldenTrainerState trains as long as the reference did when it wrote its
// trainer_state.json, and compares what is written: the fields, their types, and in the
// log all but measured times.
func TestGoldenTrainerState(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/checkpoint/trainer_state", n) })
	var want map[string]any
	if !golden.JSON(t, golden.Path(t, "train/checkpoint/trainer_state.json"), &want) {
		return
	}
	n++
	var s TrainerState
	b, _ := json.Marshal(want)
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	window, batches := windowOf(&s)
	if window == 0 {
		t.Fatalf("no window fits %d steps in %d epochs", s.MaxSteps, s.NumTrainEpochs)
	}
	a, err := quiet(nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen map[string]any
	dir := t.TempDir()
	keep := OnEvent(Saved, func(_ context.Context, m *Moment) error {
		b, err := os.ReadFile(filepath.Join(m.Folder, progress.File))
		if err != nil {
			return err
		}
		seen = nil
		return json.Unmarshal(b, &seen)
	})
	warmup, peak := peakOf(&s)
	tr, _, err := fitting(a, batches*s.TrainBatchSize, s.TrainBatchSize, false, TrainingArguments{OutputDir: dir, Epochs: float64(s.NumTrainEpochs), Schedule: "linear",
		WarmupSteps: warmup, GradientAccumulationSteps: window, MaxGradNorm: 1, LogSteps: s.LoggingSteps, EvalSteps: s.EvalSteps, SaveSteps: s.SaveSteps}, keep)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Train(t.Context()); err != nil {
		t.Fatal(err)
	}
	measured := []string{"best_global_step", "best_metric", "best_model_checkpoint"} // the reference had no metric for the best model
	for name := range want {
		if got := seen[name]; name != "log_history" && !slices.Contains(measured, name) && !reflect.DeepEqual(got, want[name]) {
			t.Errorf("%s is %v, want %v", name, got, want[name])
		}
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("fields are %v, want %v", got, want)
	}
	sameLog(t, seen["log_history"].([]any), want["log_history"].([]any), peak/1e-3)
}

// peakOf finds the largest rate of a run that logs every step, and the steps before it:
// those of a linear schedule's warm-up.
func peakOf(s *TrainerState) (warmup int, peak float64) {
	for _, e := range s.LogHistory {
		lr, _ := e["learning_rate"].(float64)
		if step, _ := e["step"].(float64); lr > peak {
			warmup, peak = int(step)-1, lr
		}
	}
	return warmup, peak
}

// windowOf finds the batches of a window and of an epoch of a run.
func windowOf(s *TrainerState) (window, batches int) {
	each := (s.MaxSteps + s.NumTrainEpochs - 1) / s.NumTrainEpochs
	first, _ := s.LogHistory[0]["epoch"].(float64)
	if step, ok := s.LogHistory[0]["step"].(float64); ok {
		first /= step
	}
	for window := 1; window <= 64; window++ {
		n := int(math.Round(float64(window) / first))
		if optim.TrainerSteps(n, window, 1, 0) == each && math.Abs(float64(window)/float64(n)-first) < 1e-9 {
			return window, n
		}
	}
	return 0, 0
}

// sameLog compares logs; the rates of want are scale times those of got.
func sameLog(t *testing.T, got, want []any, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries in the log, want %d: %v", len(got), len(want), got)
	}
	for i := range want {
		g, w := got[i].(map[string]any), want[i].(map[string]any)
		for name, v := range w {
			x, ok := g[name].(float64)
			y, _ := v.(float64)
			if name == "learning_rate" {
				x *= scale
			}
			if exact := name == "epoch" || name == "step" || name == "learning_rate"; !ok || exact && !(math.Abs(x-y) <= 1e-12) {
				t.Errorf("entry %d of the log: %s is %v, want %v", i, name, g[name], v)
			}
		}
	}
}
