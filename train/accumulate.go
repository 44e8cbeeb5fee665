package train

import (
	"context"

	"github.com/heftai/heft/train/tensor"
)

// Accumulate runs fn, which makes one forward and backward pass over one batch and then steps the
// optimizer and the scheduler. Before the last batch of an accumulation window those steps have no
// effect, and gradients of modules are not averaged over the ranks. An accumulation window ends
// after Steps batches, or with the active loader: the prepared loader that began last and has not
// ended.
func (a *Accelerator) Accumulate(ctx context.Context, fn func(context.Context) error, modules ...Module) error {
	return a.rank.Accumulate(ctx, fn, modules...)
}

// NoSync runs f without averaging the gradients of m over the ranks. Optimizers still step, and
// [Accelerator.SyncGradients] does not change.
func (a *Accelerator) NoSync(m Module, f func() error) error {
	return a.rank.WithSync([]Module{m}, false, f)
}

// TriggerSyncInBackward runs f with the gradients of m averaged over the ranks, even inside
// [Accelerator.NoSync] or an accumulation window.
func (a *Accelerator) TriggerSyncInBackward(m Module, f func() error) error {
	return a.rank.WithSync([]Module{m}, true, f)
}

// SyncGradients reports whether this batch ends its accumulation window, so that gradients are complete and can
// be clipped and logged. It is true outside [Accelerator.Accumulate].
func (a *Accelerator) SyncGradients() bool { return a.rank.Syncs() }

// EndOfDataloader reports whether the active loader is at its last batch.
func (a *Accelerator) EndOfDataloader() bool { return a.rank.Position.AtEnd() }

// Remainder returns how many samples of the active loader's last global batch are not padding: 0 if
// the batch is full, -1 if it is unknown or no loader is active.
func (a *Accelerator) Remainder() int { return a.rank.Position.Remainder() }

// InDataloader reports whether a prepared loader has begun and not ended.
func (a *Accelerator) InDataloader() bool { return a.rank.Position.Active() != nil }

// GradientAccumulationSteps returns the number of batches in an accumulation window.
func (a *Accelerator) GradientAccumulationSteps() int { return a.rank.Rule.Steps }

// SetGradientAccumulationSteps changes the number of batches in an accumulation window. The count
// continues: a window ends where the number of batches since the loader's start is a multiple of n.
func (a *Accelerator) SetGradientAccumulationSteps(n int) error { return a.rank.SetSteps(n) }

// Backward computes the gradients of loss divided by the number of batches in an accumulation
// window, and adds them to the parameters' gradients. If this batch ends the window, Backward then
// averages over the ranks the gradients of the prepared modules that loss depends on. As in
// Accelerate, it divides by Steps even if the loader's end cuts the window short, unless
// [Corrections].ShortWindow is set.
func (a *Accelerator) Backward(ctx context.Context, loss *tensor.Tensor) error {
	return a.rank.Backward(ctx, loss)
}

// JoinUnevenInputs runs f, a loop in which ranks may have different numbers of batches. A rank that
// has finished joins the others' backward passes with zeros. Means are over all ranks. At the end
// each rank gets the weights of a rank that ran longest. All ranks must call it, and must call no
// collective operation in f except Backward.
//
// Accelerate does nothing here on a CPU. Heft does what Accelerate does on GPUs. Use it with
// DataLoaderConfig.EvenBatches set to false: even batches need no joining.
func (a *Accelerator) JoinUnevenInputs(ctx context.Context, f func(context.Context) error) error {
	return a.rank.Join(ctx, f)
}

// LocalSGD trains m on every rank separately. It averages the weights over the ranks after each
// `steps` calls of step, and at the end. In a world of one it only runs f.
func (a *Accelerator) LocalSGD(ctx context.Context, m Module, steps int, f func(step func() error) error) error {
	return a.rank.LocalSGD(ctx, m, steps, f)
}
