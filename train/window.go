package train

import (
	"context"
	"iter"

	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/tensor"
)

// ItemScale returns the factor for a loss that is summed over items, such as tokens that are not
// masked. With that factor, [Accelerator.Backward] makes the gradient of the mean over all items:
// it undoes Backward's division by the steps of a window, and the averaging over ranks. items is
// the number of items in the whole window on all ranks.
func (a *Accelerator) ItemScale(items int) float32 { return a.rank.ItemScale(items) }

// Window holds the batches of one optimizer step on this rank.
type Window[B any] struct {
	// Batches may be fewer than GradientAccumulationSteps at the end of an epoch. There are none if
	// this rank has used up its batches and others have not.
	Batches []B
	// Local is the number of items in Batches; Items is the number on all ranks.
	Local, Items int

	of *rank.Window[B]
}

// Windows groups batches (a loader's All) into windows of GradientAccumulationSteps and counts
// their items on all ranks. All ranks must walk it to its end. It yields the same number of windows
// on each rank; some windows of a rank may be empty.
//
//	for w, err := range train.Windows(ctx, acc, loader.All(ctx), countLabels) {
//		…
//		sum, err := w.Each(ctx, func(ctx context.Context, b Batch) (*tensor.Tensor, error) { … })
//		err = opt.Step()
//		opt.ZeroGrad()
//	}
//
// Each step is that of the mean over all items of one big batch, whatever the number of ranks, the
// length of a window and the sizes of batches (see [Window.Each]). With
// DataLoaderConfig.EvenBatches, repeated samples count each time they are read.
func Windows[B any](ctx context.Context, a *Accelerator, batches iter.Seq2[B, error], items func(B) int) iter.Seq2[*Window[B], error] {
	return func(yield func(*Window[B], error) bool) {
		for w, err := range rank.Windows(ctx, a.rank, batches, items, nil) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&Window[B]{Batches: w.Batches, Local: w.Local, Items: w.Items, of: w}, nil) {
				return
			}
		}
	}
}

// Each runs forward and the backward pass for each batch. forward returns the loss summed over the
// batch's items. Gradients are averaged over the ranks in the last pass only, even with
// SyncEachBatch, because ranks may have different numbers of batches. A rank without a batch takes
// part in the averaging. Each returns the sum of this rank's losses; divide the sum over ranks by
// Items to report the loss.
func (w *Window[B]) Each(ctx context.Context, forward func(context.Context, B) (*tensor.Tensor, error)) (float64, error) {
	return w.of.Each(ctx, func(ctx context.Context, batches []B) ([]*tensor.Tensor, error) {
		loss, err := forward(ctx, batches[0])
		return []*tensor.Tensor{loss}, err
	})
}
