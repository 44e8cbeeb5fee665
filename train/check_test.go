package train_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

type numbers = train.TrainerConfig[[]float32]

func numbersLoader(t *testing.T) *data.Loader[[]float32] {
	l, err := data.NewLoader(make(data.Slice[float32], 8), data.Samples[float32], data.Options{BatchSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// trainNumbers trains and evaluates a parameter as change wants it.
func trainNumbers(t *testing.T, change func(c *numbers)) error {
	p := tensor.NewParameter(make([]float32, 1))
	sgd, err := optim.NewSGD(train.Params(p), optim.SGDOptions{LR: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	tape := tensor.NewTape(tensor.Options{})
	c := numbers{Model: p, Optimizer: sgd, Train: numbersLoader(t), Arguments: train.TrainingArguments{MaxSteps: 2, LogSteps: -1},
		ComputeLoss: func(context.Context, []float32) (*tensor.Tensor, error) { return tape.Sum(tape.Use(p)), nil }}
	change(&c)
	trainer, err := train.NewTrainer(c)
	if err == nil {
		_, err = trainer.Train(t.Context())
	}
	return err
}

// TestTrainersTookWhatTheyCouldNotUse: epochs without end took no step, negative numbers counted as 0, nil callbacks
// panicked, sets of one name overwrote each other's metrics, and evaluations of lists of different lengths gave a wrong loss.
func TestTrainersTookWhatTheyCouldNotUse(t *testing.T) {
	evaluates := func(e train.Evaluation) func(c *numbers) {
		return func(c *numbers) {
			c.Eval = numbersLoader(t)
			c.EvaluateBatch = func(context.Context, []float32) (train.Evaluation, error) { return e, nil }
		}
	}
	for want, change := range map[string]func(c *numbers){
		"TrainerConfig.Model is nil":              func(c *numbers) { c.Model = nil },
		"TrainerConfig.ComputeLoss is nil":        func(c *numbers) { c.ComputeLoss = nil },
		"TrainerConfig.Optimizer is nil":          func(c *numbers) { c.Optimizer = nil },
		"TrainerConfig.Train is nil":              func(c *numbers) { c.Train = nil },
		"got +Inf epochs":                         func(c *numbers) { c.Arguments.MaxSteps, c.Arguments.Epochs = 0, math.Inf(1) },
		"Unit: got 7":                             func(c *numbers) { c.Arguments.Unit = 7 },
		"MaxGradNorm: got NaN":                    func(c *numbers) { c.Arguments.MaxGradNorm = math.NaN() },
		"WarmupSteps: got -1":                     func(c *numbers) { c.Arguments.WarmupSteps = -1 },
		"SaveTotalLimit: got -1":                  func(c *numbers) { c.Arguments.SaveTotalLimit = -1 },
		"Callbacks[0] is nil":                     func(c *numbers) { c.Callbacks = []train.Callback{nil} },
		"the evaluation data \"x\" has no loader": func(c *numbers) { c.Evals = []train.EvalSet[[]float32]{{Name: "x"}} },
		"two sets of evaluation data have the name \"\"": func(c *numbers) {
			c.Eval = numbersLoader(t)
			c.Evals = []train.EvalSet[[]float32]{{Loader: numbersLoader(t)}}
		},
		"window: got -1 items":                                       func(c *numbers) { c.Items = func([]float32) int { return -1 } },
		"evaluate: got 2 Losses and 1 Items, want one":               evaluates(train.Evaluation{Losses: []float64{1, 2}, Items: []int{1}}),
		"evaluate: got 1 Losses and 2 Sums[entropy], want one":       evaluates(train.Evaluation{Losses: []float64{1}, Sums: map[string][]float64{"entropy": {1, 2}}}),
		"evaluate: got 1 Predicted and 0 Labels, want one for each ": evaluates(train.Evaluation{Predicted: []int{1}, Labels: []int{}}),
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			if err := trainNumbers(t, change); err == nil || !strings.HasPrefix(err.Error(), "train: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
	if err := trainNumbers(t, func(*numbers) {}); err != nil {
		t.Error(err)
	}
}

// TestNegativeLimitsTurnedGradientsRound: a limit below 0 made gradients point the other way, and one of NaN left them.
func TestNegativeLimitsTurnedGradientsRound(t *testing.T) {
	acc, err := train.New(train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := tensor.NewParameter(make([]float32, 1))
	params := train.Params(p)
	for _, limit := range []float64{-1, math.NaN()} {
		p.SetGrad([]float32{3})
		_, norm := acc.ClipGradNorm(params, limit, 2)
		for name, err := range map[string]error{"norm": norm, "value": acc.ClipGradValue(params, limit)} {
			if err == nil || !strings.Contains(err.Error(), "optim: clip: got the limit") {
				t.Errorf("%s of %v: got %v", name, limit, err)
			}
		}
		if n := optim.ClipNorm(params, limit, 2); !math.IsNaN(n) || p.Grad()[0] != 3 {
			t.Errorf("ClipNorm to %v gave the norm %v and the gradient %v, want NaN and no change", limit, n, p.Grad())
		}
	}
}

// TestNilArgumentsOfTrainPanicked, and settings that exclude each other were taken.
func TestNilArgumentsOfTrainPanicked(t *testing.T) {
	ctx := t.Context()
	acc, err := train.New(train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sgd, err := optim.NewSGD(train.Params(tensor.NewParameter(make([]float32, 1))), optim.SGDOptions{LR: 1})
	if err != nil {
		t.Fatal(err)
	}
	less := -1
	refused := func(c train.Config) error { _, err := train.New(c); return err }
	for want, call := range map[string]func() error{
		"launch: got a nil function":             func() error { return train.Launch(ctx, 1, nil) },
		"prepare: the loader is nil":             func() error { return acc.PrepareDataLoader(nil) },
		"save model: got a nil module":           func() error { return train.SaveModel(ctx, acc, nil, t.TempDir(), train.SaveModelOptions{}) },
		"use: got a parameter without a storage": func() error { tp := tensor.NewTape(tensor.Options{}); tp.Use(new(tensor.Parameter)); return tp.Err() },
		"got TotalLimit -1":                      func() error { return refused(train.Config{Project: train.ProjectConfiguration{TotalLimit: -1}}) },
		"both ProjectDir a and Project.ProjectDir b": func() error {
			return refused(train.Config{ProjectDir: "a", Project: train.ProjectConfiguration{ProjectDir: "b"}})
		},
		"schedule linear: got -1 warm-up steps": func() error {
			_, err := optim.NewScheduler(sgd, optim.ScheduleSpec{Name: "linear", WarmupSteps: &less, TrainingSteps: &less})
			return err
		},
		"schedule constant: got no optimizer to move": func() error { _, err := optim.NewScheduler(nil, optim.ScheduleSpec{Name: "constant"}); return err },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			if err := call(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}
