package train

import (
	"context"
	"iter"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// ItemScale returns the factor for a loss that is summed over items, such as tokens that are not
// masked. With that factor, [Accelerator.Backward] makes the gradient of the mean over all items:
// it undoes Backward's division by the steps of a window, and the averaging over ranks. items is
// the number of items in the whole window on all ranks.
func (a *Accelerator) ItemScale(items int) float32 {
	if items == 0 {
		return 0
	}
	return float32(a.accum.Steps*a.comm.Size()) / float32(items)
}

// Window holds the batches of one optimizer step on this rank.
type Window[B any] struct {
	// Batches may be fewer than GradientAccumulationSteps at the end of an epoch. There are none if
	// this rank has used up its batches and others have not.
	Batches []B
	// Local is the number of items in Batches; Items is the number on all ranks.
	Local, Items int

	a *Accelerator
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
		next, stop := iter.Pull2(batches)
		defer stop()
		for {
			w := &Window[B]{a: a}
			for len(w.Batches) < a.accum.Steps {
				b, err, ok := next()
				if err != nil {
					yield(nil, err)
					return
				}
				if !ok {
					break
				}
				w.Batches = append(w.Batches, b)
				w.Local += items(b)
			}
			all, err := collective.AllGather(ctx, a.comm, [2]int{w.Local, len(w.Batches)})
			if err != nil {
				yield(nil, wrap("window", err))
				return
			}
			left := 0
			for _, x := range all {
				w.Items += x[0]
				left += x[1]
			}
			if left == 0 || !yield(w, nil) {
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
	a := w.a
	var modules []Module
	for _, p := range a.group.Modules {
		modules = append(modules, p.Module)
	}
	scale := a.ItemScale(w.Items) / float32(a.accum.Steps)
	total := 0.0
	for i, b := range w.Batches {
		one := func() error {
			loss, err := forward(ctx, b)
			if err != nil {
				return err
			}
			if loss.Len() == 1 { // else Backward says what is wrong, or was before
				total += float64(loss.Item())
			}
			return a.backward(ctx, loss, scale)
		}
		var err error
		if i == len(w.Batches)-1 {
			err = one()
		} else {
			err = a.setSync(modules, false, one)
		}
		if err != nil {
			return total, err
		}
	}
	a.state.Sync, a.state.Ended = true, true
	if len(w.Batches) > 0 || a.comm.Size() == 1 {
		return total, nil
	}
	reached := make([]bool, len(a.group.Modules))
	for i := range reached {
		reached[i] = true
	}
	return total, a.group.Average(ctx, reached)
}
