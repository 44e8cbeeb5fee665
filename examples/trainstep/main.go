// Trainstep trains a small classifier with a Trainer that counts batches: gradients are
// summed without averaging them over the ranks until a window's last batch, measured,
// clipped and applied, and the learning rate moves with every batch. It shows each step's
// norms and rate, and how many steps a schedule must be made for.
//
//	go run ./examples/trainstep
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"os"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

const (
	samples, batchSize, window = 24, 3, 4
	features, hidden, classes  = 4, 8, 3
)

// net is fc2(tanh(fc1(x))).
type net struct{ w1, b1, w2, b2 *tensor.Parameter }

func newNet(g *rng.Generator) *net {
	n := &net{tensor.NewParameter(make([]float32, hidden*features), hidden, features), tensor.NewParameter(make([]float32, hidden)),
		tensor.NewParameter(make([]float32, classes*hidden), classes, hidden), tensor.NewParameter(make([]float32, classes))}
	g.Linear(n.w1.Data(), n.b1.Data(), features)
	g.Linear(n.w2.Data(), n.b2.Data(), hidden)
	return n
}

func (n *net) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		_ = yield("fc1.weight", n.w1) && yield("fc1.bias", n.b1) && yield("fc2.weight", n.w2) && yield("fc2.bias", n.b2)
	}
}

// sample is a point and its class.
type sample struct {
	x     []float32
	label int
}

func dataset(g *rng.Generator) data.Slice[sample] {
	all := make(data.Slice[sample], samples)
	for i := range all {
		x := make([]float32, features)
		g.Normal(x, 0, 1)
		all[i] = sample{x, g.IntN(classes)}
	}
	return all
}

// options are what differs between the runs.
type options struct {
	ranks    int
	strategy optim.Strategy
	real     int // the real batch size; 0 follows from the window
}

// trainer makes a rank's, from the same seed on every rank.
func (o options) trainer(w *train.World, callbacks ...train.Callback) (*train.Trainer[[]sample], error) {
	g := rng.New(0)
	model, tape := newNet(g), tensor.NewTape(tensor.Options{})
	loader, err := data.NewLoader(dataset(g), data.Samples[sample], data.Options{BatchSize: batchSize})
	if err != nil {
		return nil, err
	}
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.5})
	if err != nil {
		return nil, err
	}
	acc, err := train.New(train.Config{World: w, GradientAccumulationSteps: window, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	args := train.TrainingArguments{Unit: train.Batches, Strategy: o.strategy, RealBatchSize: o.real, MaxGradNorm: 0.05, Schedule: "linear", WarmupSteps: 2, LogSteps: 1}
	if o.strategy == optim.BySteps {
		args.MaxSteps = 8
	} else {
		args.Epochs = 2
	}
	return train.NewTrainer(train.TrainerConfig[[]sample]{
		Accelerator: acc, Model: model, Optimizer: sgd, Train: loader, Arguments: args, Callbacks: callbacks,
		ComputeLoss: func(_ context.Context, batch []sample) (*tensor.Tensor, error) {
			var x []float32
			var labels []int
			for _, s := range batch {
				x, labels = append(x, s.x...), append(labels, s.label)
			}
			h := tape.Tanh(tape.Linear(tape.Input(x, len(batch), features), tape.Use(model.w1), tape.Use(model.b1)))
			return tape.CrossEntropy(tape.Linear(h, tape.Use(model.w2), tape.Use(model.b2)), labels, tensor.CrossEntropyOptions{}), nil
		},
	})
}

// run trains and shows the steps of the main process.
func (o options) run(ctx context.Context, to io.Writer) error {
	return train.Launch(ctx, o.ranks, func(ctx context.Context, w *train.World) error {
		var t *train.Trainer[[]sample]
		row := train.OnEvent(train.StepEnd, func(_ context.Context, m *train.Moment) error {
			if w.Rank() > 0 {
				return nil
			}
			r := m.Result
			norms := fmt.Sprintf("%10s %10s", "", "")
			if r.Synced {
				norms = fmt.Sprintf("%10.4f %10.4f", r.GradNormPreClip, r.GradNormPostClip)
			}
			moved := t.Scheduler().State().LastEpoch
			_, err := fmt.Fprintf(to, "  %4d %8.4f %s %11.5f %8.5f %9d\n", r.GlobalStep, r.Loss, norms, r.WeightNorm, r.LR, moved)
			return err
		})
		var err error
		if t, err = o.trainer(w, row); err != nil {
			return err
		}
		if w.Rank() == 0 {
			fmt.Fprintf(to, "\n%d rank(s), by %s: %d micro steps each, a schedule of %d steps, %d batches a window\n", o.ranks, o.strategy, t.State().MaxSteps, t.ScheduleSteps(), t.GradientAccumulationSteps())
			fmt.Fprintf(to, "  %4s %8s %10s %10s %11s %8s %9s\n", "step", "loss", "norm", "clipped", "weight norm", "next lr", "schedule")
		}
		_, err = t.Train(ctx)
		return err
	})
}

func write(ctx context.Context, to io.Writer) error {
	fmt.Fprintf(to, "%d samples, batches of %d, windows of %d\n", samples, batchSize, window)
	for _, o := range []options{{1, optim.ByEpochs, 0}, {2, optim.ByEpochs, 0}, {2, optim.BySteps, 0}} {
		if err := o.run(ctx, to); err != nil {
			return err
		}
	}
	fmt.Fprintln(to, "\nhow long a schedule is")
	fmt.Fprintf(to, "  %6s %9s %6s %10s %7s\n", "ranks", "strategy", "steps", "schedule", "window")
	for _, r := range []optim.RunLength{
		{World: 1, Strategy: optim.ByEpochs}, {World: 2, Strategy: optim.ByEpochs}, {World: 4, Strategy: optim.ByEpochs},
		{World: 1, Strategy: optim.BySteps}, {World: 2, Strategy: optim.BySteps}, {World: 4, Strategy: optim.BySteps},
		{World: 2, Strategy: optim.BySteps, RealBatch: 48},
	} {
		r.Samples, r.BatchSize, r.Accumulation, r.Epochs, r.Steps = samples, batchSize, window, 2, 8
		c, err := optim.Count(r)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "  %6d %9s %6d %10d %7d\n", r.World, r.Strategy, c.Steps, c.ScheduleSteps, c.Accumulation)
	}
	_, err := options{ranks: 1, real: 10}.trainer(nil)
	if !errors.Is(err, optim.ErrRealBatch) {
		return fmt.Errorf("a real batch of 10 samples was taken for batches of %d: %v", batchSize, err)
	}
	_, err = fmt.Fprintf(to, "\na real batch of 10 samples: %v\n", err)
	return err
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: trainstep\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
