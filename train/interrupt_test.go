package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// interruptedRun trains on some ranks until the last one was asked for the ask-th time whether it is to stop, and
// returns the weights and the result. With ask 0 it is not interrupted.
func interruptedRun(t *testing.T, ranks int, args TrainingArguments, ask int) (weights string, result TrainResult) {
	t.Helper()
	var mu sync.Mutex
	err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
		asked := 0
		run, err := configuredWave(w, slog.DiscardHandler, args, func(c *TrainerConfig[[]int], tape *tensor.Tape) {
			loss, random := c.ComputeLoss, c.Accelerator.Generator()
			c.ComputeLoss = func(ctx context.Context, ids []int) (*tensor.Tensor, error) { // draws a number for each batch
				x, err := loss(ctx, ids)
				return tape.Scale(x, 0.5+float32(random.Float64())), err
			}
			c.Interrupted = func(int) bool {
				asked++
				return w.Rank() == ranks-1 && asked == ask
			}
		})
		if err != nil {
			return err
		}
		r, err := run.trainer.Train(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if weights != "" && weights != run.weights() {
			return errors.New("the ranks' weights differ")
		}
		weights, result = run.weights(), r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return weights, result
}

// TestALongStepWasNotInterrupted stops runs at every place where they can stop, between the batches of a step too, and
// goes on: the weights are those of a run that went through. A signal waited for the end of a step.
func TestALongStepWasNotInterrupted(t *testing.T) {
	for _, unit := range []StepUnit{Updates, Batches} {
		for _, ranks := range []int{1, 2} {
			args := TrainingArguments{Unit: unit, Epochs: 2, GradientAccumulationSteps: 3, LogSteps: 2}
			through := args
			through.OutputDir = t.TempDir()
			want, all := interruptedRun(t, ranks, through, 0)
			places := 0
			for ask := 1; ; ask++ {
				args := args
				args.OutputDir, args.Resume = t.TempDir(), true
				_, r := interruptedRun(t, ranks, args, ask)
				if !r.Interrupted {
					break
				}
				places++
				if _, err := os.Stat(filepath.Join(args.OutputDir, fmt.Sprintf("checkpoint-%d", r.GlobalStep))); err != nil {
					t.Errorf("unit %d, %d ranks, place %d: %v", unit, ranks, ask, err)
				}
				if got, after := interruptedRun(t, ranks, args, 0); got != want || after.GlobalStep != all.GlobalStep || after.Interrupted {
					t.Errorf("unit %d, %d ranks, place %d: after %d steps, another result than that of a run that went through (%+v)", unit, ranks, ask, r.GlobalStep, after)
				}
			}
			least := all.GlobalStep - 1
			if unit == Batches {
				least /= args.GradientAccumulationSteps
			}
			if places < least || unit == Updates && ranks == 1 && places <= least {
				t.Errorf("unit %d, %d ranks: runs of %d steps stopped at %d places", unit, ranks, all.GlobalStep, places)
			}
		}
	}
}

// TestAnInterruptedRunEvaluatedTheEpoch: a run that was stopped inside an epoch evaluated first, as at its end.
func TestAnInterruptedRunEvaluatedTheEpoch(t *testing.T) {
	_, r := interruptedRun(t, 1, TrainingArguments{Epochs: 2, OutputDir: t.TempDir()}, 1)
	if !r.Interrupted || r.Metrics != nil {
		t.Errorf("got %+v, want an interrupted run without an evaluation", r)
	}
}
