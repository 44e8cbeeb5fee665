package train

import (
	"context"
	"errors"

	"github.com/heftai/heft/train/tensor"
)

// backwardAll runs a backward pass in a world of several ranks.
func (a *Accelerator) backwardAll(ctx context.Context, loss *tensor.Tensor, scale float32) error {
	before := a.group.SetAside()
	err := tensor.Backward(loss, scale)
	reached := a.group.PutBack(before)
	if err != nil {
		return err
	}
	return a.group.Average(ctx, reached)
}

// JoinUnevenInputs runs f, a loop in which this rank may have fewer batches than
// others. A rank that is done takes part in the others' backward passes with zeros, the
// divisor staying the whole world, and in the end gets the weights of a rank that went
// on longest. All ranks must call it, and call nothing collective in f but Backward.
//
// The reference does nothing here on CPU; this is what it does on GPUs. Use it with
// DataLoaderConfig.EvenBatches off: loaders whose batches are even need no joining.
func (a *Accelerator) JoinUnevenInputs(ctx context.Context, f func(context.Context) error) error {
	if a.comm.Size() == 1 {
		return f(ctx)
	}
	if a.group.Joining {
		return errors.New("train: joins do not nest")
	}
	a.group.Joining = true
	defer func() { a.group.Joining = false }()
	if err := f(ctx); err != nil {
		return err
	}
	last := true
	for {
		active, err := a.group.Roll(ctx, false)
		if err != nil {
			return err
		}
		if !active {
			return a.group.Adopt(ctx, last)
		}
		last = false
		if err := a.group.Shadow(ctx); err != nil {
			return err
		}
	}
}
