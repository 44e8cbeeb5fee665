package main

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// linear is a module with one weight.
type linear struct{ weight *tensor.Parameter }

func (m *linear) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) { yield("weight", m.weight) }
}

// eight fits eight samples by four batches of two, and a clone by all eight at once.
func eight(ctx context.Context, to io.Writer, what string, model train.Module, weight *tensor.Parameter) error {
	const batches = 4
	samples := samples(2 * batches)
	clone := tensor.NewParameter([]float32{0}, 1, 1)
	acc, err := train.New(train.Config{GradientAccumulationSteps: batches})
	if err != nil {
		return err
	}
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.02})
	if err != nil {
		return err
	}
	var opt optim.Optimizer = sgd
	loader, err := data.NewLoader(samples, data.Samples[sample], data.Options{BatchSize: 2})
	if err != nil {
		return err
	}
	if err := acc.Prepare(model, &opt, loader); err != nil {
		return err
	}
	fmt.Fprintf(to, "%s\n  initial model weight is %.5f\n  initial model weight is %.5f\n", what, weight.Data()[0], clone.Data()[0])
	tape, i := tensor.NewTape(tensor.Options{}), 0
	for batch, err := range loader.All(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "  %d [%.0f %.0f]\n", i, batch[0].x, batch[1].x)
		i++
		err = acc.Accumulate(ctx, func(ctx context.Context) error {
			if err := acc.Backward(ctx, meanSquare(tape, weight, batch)); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			opt.ZeroGrad()
			return nil
		}, model)
		if err != nil {
			return err
		}
	}
	whole, err := optim.NewSGD(train.Params(clone), optim.SGDOptions{LR: 0.02})
	if err != nil {
		return err
	}
	if err := tape.Backward(meanSquare(tape, clone, samples), 1); err != nil {
		return err
	}
	if err := whole.Step(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "  w/ accumulation, the final model weight is %.5f\n  w/o accumulation, the final model weight is %.5f\n", weight.Data()[0], clone.Data()[0])
	return err
}
