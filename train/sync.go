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

// JoinUnevenInputs runs f, a loop in which ranks may have different numbers of batches. A rank that
// has finished takes part in the others' backward passes with zeros. The mean is over all ranks. In
// the end it gets the weights of a rank that ran longest. All ranks must call it, and call no
// collective operation in f except Backward.
//
// Accelerate does nothing here on a CPU; this is what it does on GPUs. Use it with
// DataLoaderConfig.EvenBatches set to false: even batches need no joining.
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
