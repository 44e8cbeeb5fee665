// Outside is a program of another module: it can name everything that a user of Heft
// needs, and nothing of Heft's own.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"os"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// line is y = w·x + b, a module of the user's own.
type line struct{ w, b *tensor.Parameter }

func (l *line) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) { _ = yield("w", l.w) && yield("b", l.b) }
}

// printing is a tracker of the user's own.
type printing struct{}

func (printing) Name() string                 { return "printing" }
func (printing) Configure(track.Values) error { return nil }
func (printing) Close() error                 { return nil }
func (printing) Log(v track.Values, step int) error {
	if loss, ok := v["loss"]; ok && step%50 == 0 {
		fmt.Printf("step %d, loss %.4f\n", step, loss)
	}
	return nil
}

var (
	_ train.Module  = (*line)(nil)
	_ track.Tracker = printing{}
)

func fit(ctx context.Context, dir string) (*line, error) {
	m := &line{tensor.NewParameter(make([]float32, 1), 1, 1), tensor.NewParameter(make([]float32, 1))}
	g := rng.New(1)
	xs := make(data.Slice[float32], 64)
	for i := range xs {
		xs[i] = 2*g.Float32() - 1
	}
	l, err := data.NewLoader(xs, data.Samples[float32], data.Options{BatchSize: 4, Shuffle: true, Generator: g})
	if err != nil {
		return nil, err
	}
	sgd, err := optim.NewSGD(train.Params(m), optim.SGDOptions{LR: 0.2})
	if err != nil {
		return nil, err
	}
	acc, err := train.New(train.Config{GradientAccumulationSteps: 2, ProjectDir: dir, LogWith: []string{"tensorboard"}, Trackers: []track.Tracker{printing{}}})
	if err != nil {
		return nil, err
	}
	if err := acc.InitTrackers("outside", track.Values{"lr": 0.2}); err != nil {
		return nil, err
	}
	tape := tensor.NewTape(tensor.Options{})
	t, err := train.NewTrainer(train.TrainerConfig[[]float32]{Accelerator: acc, Model: m, Optimizer: sgd, Train: l,
		Arguments: train.TrainingArguments{MaxSteps: 100, LogSteps: 10, OutputDir: dir, SaveSteps: 50},
		ComputeLoss: func(_ context.Context, x []float32) (*tensor.Tensor, error) {
			y := make([]float32, len(x))
			for i, v := range x {
				y[i] = 2*v + 1
			}
			out := tape.Linear(tape.Input(x, len(x), 1), tape.Use(m.w), tape.Use(m.b))
			return tape.MSE(out, tape.Input(y, len(y), 1), tensor.Mean), nil
		}})
	if err != nil {
		return nil, err
	}
	if _, err := t.Train(ctx); err != nil {
		return nil, err
	}
	return m, acc.EndTraining()
}

func main() {
	dir, err := os.MkdirTemp("", "outside-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := fit(context.Background(), dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := serving(context.Background(), dir); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y = %.4fx + %.4f\n", m.w.Data()[0], m.b.Data()[0])
}
