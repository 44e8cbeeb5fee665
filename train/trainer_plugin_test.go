package train

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// The trainer measures and clips the gradients of all ranks, also where each rank has a part of them.
func TestTrainerDidNotClipSplitGradients(t *testing.T) {
	for name, plugin := range plugins {
		report(t, Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
			a, err := New(Config{World: w, Plugin: plugin(w)})
			if err != nil {
				return err
			}
			p := tensor.NewParameter([]float32{1, 1, 1, 1})
			sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 1})
			if err != nil {
				return err
			}
			l, err := data.NewLoader(data.Slice[int]{0, 1, 2, 3, 4, 5}, data.Samples[int], data.Options{BatchSize: 1})
			if err != nil {
				return err
			}
			tape, norm := a.NewTape(tensor.Options{Threads: 1}), 0.0
			trainer, err := NewTrainer(TrainerConfig[[]int]{Accelerator: a, Model: p, Optimizer: sgd, Train: l,
				Arguments: TrainingArguments{MaxSteps: 1, GradientAccumulationSteps: 3, MaxGradNorm: 1, Schedule: "constant", SaveSteps: -1, LogSteps: -1},
				Items:     func(ids []int) int { return len(ids) },
				ComputeLoss: func(context.Context, []int) (*tensor.Tensor, error) {
					return tape.Scale(tape.Sum(tape.Use(p)), float32(2+2*w.Rank())), tape.Err() // mean gradients of 3
				},
				Callbacks: []Callback{OnEvent(StepEnd, func(_ context.Context, m *Moment) error { norm = m.Result.GradNormPreClip; return nil })}})
			if err != nil {
				return err
			}
			if _, err := trainer.Train(ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, v := range p.Data() { // a norm of 6, limited to 1
				if !(math.Abs(float64(v)-0.5) <= 1e-5) || !(math.Abs(norm-6) <= 1e-5) {
					return fmt.Errorf("%s: weights %v after gradients of norm %v, want 0.5 and 6", name, p.Data(), norm)
				}
			}
			return nil
		}))
	}
}

// A window of a plugin that averages each pass has as many passes on every rank, also where the data
// ends earlier on some.
func TestWindowsOfUnequalLengthHungWithoutNoSync(t *testing.T) {
	for name, plugin := range plugins {
		report(t, Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
			a, err := New(Config{World: w, Plugin: plugin(w), GradientAccumulationSteps: 4, DataLoader: DataLoaderConfig{EvenBatches: new(bool)}})
			if err != nil {
				return err
			}
			p := tensor.NewParameter([]float32{0, 0, 0})
			sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 1})
			if err != nil {
				return err
			}
			var opt optim.Optimizer = sgd
			l, err := data.NewLoader(data.Slice[int]{1, 2, 3, 4, 5}, data.Samples[int], data.Options{BatchSize: 1})
			if err == nil {
				err = a.Prepare(p, &opt, l)
			}
			if err != nil {
				return err
			}
			tape := a.NewTape(tensor.Options{Threads: 1})
			for win, err := range Windows(ctx, a, l.All(ctx), func(b []int) int { return len(b) }) {
				if err == nil {
					_, err = win.Each(ctx, func(_ context.Context, b []int) (*tensor.Tensor, error) {
						return tape.Scale(tape.Sum(tape.Use(p)), float32(b[0])), nil
					})
				}
				if err == nil {
					err = opt.Step()
				}
				if err != nil {
					return err
				}
				opt.ZeroGrad()
			}
			for _, v := range p.Data() {
				if !(math.Abs(float64(v)+3) <= 1e-5) { // the mean of 1 to 5
					return fmt.Errorf("%s: weights %v, want -3", name, p.Data())
				}
			}
			return nil
		}))
	}
}
