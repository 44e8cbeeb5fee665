package train

import (
	"context"
	"log/slog"
	"math"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// evaluateSums evaluates a model whose loss is a sum, on some ranks.
func evaluateSums(t *testing.T, ranks, samples, batch int, stream, split bool) (result map[string]float64) {
	err := Launch(t.Context(), ranks, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Logger: slog.New(slog.DiscardHandler), DataLoader: DataLoaderConfig{SplitBatches: split}})
		if err != nil {
			return err
		}
		numbers := make(data.Slice[int], samples)
		for i := range numbers {
			numbers[i] = i + 1
		}
		train, err := data.NewLoader(numbers, data.Samples[int], data.Options{BatchSize: 2 * ranks})
		if err != nil {
			return err
		}
		eval, err := data.NewLoader(numbers, data.Samples[int], data.Options{BatchSize: batch, Shuffle: true, Global: a.Generator()})
		if stream {
			eval, err = data.NewStreamLoader(data.Stream[int](endless{numbers}), data.Samples[int], data.Options{BatchSize: batch})
		}
		if err != nil {
			return err
		}
		a.SetSeed(3, true) // of each rank another
		p, tape := tensor.NewParameter([]float32{0.5}), tensor.NewTape(tensor.Options{Threads: 1})
		sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 0.1})
		if err != nil {
			return err
		}
		trainer, err := NewTrainer(TrainerConfig[[]int]{Accelerator: a, Model: p, Optimizer: sgd, Train: train, Eval: eval,
			ComputeLoss: func(_ context.Context, ids []int) (*tensor.Tensor, error) {
				sum := 0
				for _, id := range ids {
					sum += id * id
				}
				return tape.Sum(tape.Scale(tape.Use(p), float32(sum))), nil
			},
			Items: func(ids []int) (n int) {
				for _, id := range ids {
					n += id
				}
				return n
			}})
		if err != nil {
			return err
		}
		m, err := trainer.Evaluate(ctx)
		if w.Rank() == 0 {
			result = m
		}
		return err
	})
	if err != nil {
		t.Errorf("%d ranks, %d samples in batches of %d (stream %v, split %v): %v", ranks, samples, batch, stream, split, err)
	}
	return result
}

// TestTrainerEvaluatesSumsAlikeOnAnyWorld: where the loss is the sum over a batch's items,
// of which samples have different numbers, no sample counts twice, whatever the ranks.
func TestTrainerEvaluatesSumsAlikeOnAnyWorld(t *testing.T) {
	for _, samples := range []int{1, 5, 11, 12} {
		want := 0.5 * float64(2*samples+1) / 3 // Σi²/Σi, halved
		for ranks := 1; ranks <= 4; ranks++ {
			for _, batch := range []int{1, 3} {
				for _, kind := range []struct{ stream, split bool }{{}, {stream: true}, {split: true}, {true, true}} {
					size := batch
					if kind.split {
						size *= ranks
					}
					m := evaluateSums(t, ranks, samples, size, kind.stream, kind.split)
					if d := math.Abs(m["eval_loss"] - want); !(d < 1e-6) {
						t.Errorf("%d ranks, %d samples in batches of %d, %+v: eval_loss %v, want %v", ranks, samples, size, kind, m["eval_loss"], want)
					}
				}
			}
		}
	}
}
