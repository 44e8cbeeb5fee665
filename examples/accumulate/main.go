// Accumulate fits y = 2x by steps of a global batch, in several ways to divide it: over
// the micro batches of a window, over ranks, over both. The loss of each step and the
// weight after it are the same in every one.
//
//	go run ./examples/accumulate
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// sample is one x with its label.
type sample struct{ x, y float32 }

// samples are x = 1/n … 1 scaled up to 8, with y = 2x.
func samples(n int) data.Slice[sample] {
	s := make(data.Slice[sample], n)
	for i := range s {
		x := 8 * float32(i+1) / float32(n)
		s[i] = sample{x, 2 * x}
	}
	return s
}

// run is one way to divide a global batch.
type run struct {
	ranks, steps, batch int
	corrected           bool
}

// step is a step of the optimizer: the mean loss before it, and the weight after it.
type step struct{ loss, weight float64 }

func (r run) accelerator(w *train.World) (*train.Accelerator, error) {
	c := train.Config{World: w, GradientAccumulationSteps: r.steps}
	if r.corrected {
		c.Corrections = train.Corrected()
	}
	return train.New(c)
}

// fit takes one epoch over s.
func (r run) fit(ctx context.Context, s data.Slice[sample], rate float64) ([]step, error) {
	var steps []step
	err := train.Launch(ctx, r.ranks, func(ctx context.Context, w *train.World) error {
		acc, err := r.accelerator(w)
		if err != nil {
			return err
		}
		model := tensor.NewParameter([]float32{0}, 1, 1) // a bare parameter is a module
		sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: rate})
		if err != nil {
			return err
		}
		var opt optim.Optimizer = sgd
		loader, err := data.NewLoader(s, data.Samples[sample], data.Options{BatchSize: r.batch})
		if err != nil {
			return err
		}
		if err := acc.Prepare(model, &opt, loader); err != nil {
			return err
		}
		losses, batches := 0.0, 0
		tape := tensor.NewTape(tensor.Options{})
		for batch, err := range loader.All(ctx) {
			if err != nil {
				return err
			}
			err = acc.Accumulate(ctx, func(ctx context.Context) error {
				l := meanSquare(tape, model, batch)
				losses, batches = losses+float64(l.Item()), batches+1
				if err := acc.Backward(ctx, l); err != nil {
					return err
				}
				if err := opt.Step(); err != nil { // nothing until the window's last batch
					return err
				}
				opt.ZeroGrad()
				return nil
			}, model)
			if err != nil {
				return err
			}
			if !acc.SyncGradients() {
				continue
			}
			mean, err := train.Reduce(ctx, acc, []float64{losses / float64(batches)}, train.ReduceMean)
			if err != nil {
				return err
			}
			losses, batches = 0, 0
			if acc.IsMainProcess() {
				steps = append(steps, step{mean[0], float64(model.Data()[0])})
			}
		}
		return nil
	})
	return steps, err
}

// meanSquare is the loss of y = w·x.
func meanSquare(tape *tensor.Tape, w *tensor.Parameter, batch []sample) *tensor.Tensor {
	x, y := make([]float32, len(batch)), make([]float32, len(batch))
	for i, s := range batch {
		x[i], y[i] = s.x, s.y
	}
	out := tape.Linear(tape.Input(x, len(x), 1), tape.Use(w), nil)
	return tape.MSE(out, tape.Input(y, len(y), 1), tensor.Mean)
}

func write(ctx context.Context, to io.Writer) error {
	bare, m := tensor.NewParameter([]float32{0}, 1, 1), &linear{tensor.NewParameter([]float32{0}, 1, 1)}
	if err := eight(ctx, to, "a module that has a weight", m, m.weight); err != nil {
		return err
	}
	if err := eight(ctx, to, "a bare parameter as the model", bare, bare); err != nil {
		return err
	}
	fmt.Fprintln(to, "the same on ranks")
	for _, c := range []struct {
		what string
		run
	}{
		{"two ranks", run{2, 2, 2, false}},
		{"two ranks, a window cut short", run{2, 4, 2, false}},
		{"the same, corrected", run{2, 4, 2, true}},
	} {
		steps, err := c.fit(ctx, samples(8), 0.02)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "  %-30s the final model weight is %.5f\n", c.what+",", steps[len(steps)-1].weight)
	}
	return compare(ctx, to)
}

// compare takes the same steps in several configurations.
func compare(ctx context.Context, to io.Writer) error {
	const count = 5
	fmt.Fprintln(to, "\nglobal batch 32, the same loss in every configuration")
	fmt.Fprintf(to, "  ranks  steps  batch")
	for i := range count {
		fmt.Fprintf(to, "   loss %d", i+1)
	}
	fmt.Fprintln(to, "   weight")
	var first []step
	worst := 0.0
	for _, r := range []run{{1, 1, 32, false}, {1, 4, 8, false}, {1, 32, 1, false}, {2, 1, 16, false}, {2, 4, 4, false}, {4, 1, 8, false}, {4, 8, 1, false}} {
		steps, err := r.fit(ctx, samples(count*32), 0.01)
		if err != nil {
			return err
		}
		if first == nil {
			first = steps
		}
		if len(steps) != len(first) {
			return fmt.Errorf("%d steps, want %d", len(steps), len(first))
		}
		fmt.Fprintf(to, "  %5d  %5d  %5d", r.ranks, r.steps, r.batch)
		for i, s := range steps {
			worst = max(worst, math.Abs(s.loss-first[i].loss)/first[i].loss, math.Abs(s.weight-first[i].weight))
			fmt.Fprintf(to, " %8.4f", s.loss)
		}
		fmt.Fprintf(to, "  %.5f\n", steps[len(steps)-1].weight)
	}
	if worst > 1e-5 {
		return fmt.Errorf("configurations differ by %.1e", worst)
	}
	_, err := fmt.Fprintf(to, "  the largest difference is %.1e\n", worst)
	return err
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: accumulate\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
