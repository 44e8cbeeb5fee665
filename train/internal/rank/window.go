package rank

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// Window holds the batches of one optimizer step on this rank.
type Window[B any] struct {
	Batches []B
	// Local is the number of items in Batches, and Items the number on all ranks.
	Local, Items int

	least, most int // number of batches on the rank with the fewest, and with the most
	r           *Rank
}

// Least returns the number of batches of the rank with the fewest.
func (w *Window[B]) Least() int { return w.least }

// Most returns the number of batches of the rank with the most.
func (w *Window[B]) Most() int { return w.most }

// ItemScale returns the factor that turns a sum over items into their mean, given that Backward
// divides by the steps of a window and gradients are averaged over the ranks.
func (r *Rank) ItemScale(items int) float32 {
	if items == 0 {
		return 0
	}
	return float32(r.Rule.Steps*r.Comm.Size()) / float32(items)
}

// Windows groups batches into windows and counts their items on all ranks. Each rank gets the
// same number of windows; some windows of a rank may be empty. ready, if not nil, is called with
// the batches of a window before their items are counted.
func Windows[B any](ctx context.Context, r *Rank, batches iter.Seq2[B, error], items func(B) int, ready func(context.Context, []B) error) iter.Seq2[*Window[B], error] {
	return func(yield func(*Window[B], error) bool) {
		next, stop := iter.Pull2(batches)
		defer stop()
		for {
			w := &Window[B]{r: r}
			for len(w.Batches) < r.Rule.Steps {
				b, err, ok := next()
				if err != nil {
					yield(nil, err)
					return
				}
				if !ok {
					break
				}
				w.Batches = append(w.Batches, b)
			}
			if ready != nil {
				if err := ready(ctx, w.Batches); err != nil {
					yield(nil, err)
					return
				}
			}
			for _, b := range w.Batches {
				n := items(b)
				if n < 0 {
					yield(nil, fmt.Errorf("train: window: got %d items of a batch, want 0 or more", n))
					return
				}
				w.Local += n
			}
			left, err := w.count(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if left == 0 || !yield(w, nil) {
				return
			}
		}
	}
}

// count sums the items of all ranks, and returns the number of batches on all ranks.
func (w *Window[B]) count(ctx context.Context) (batches int, err error) {
	all, err := collective.AllGather(ctx, w.r.Comm, [2]int{w.Local, len(w.Batches)})
	if err != nil {
		return 0, fmt.Errorf("train: window: %w", err)
	}
	w.least = len(w.Batches)
	for _, x := range all {
		w.Items += x[0]
		batches += x[1]
		w.least, w.most = min(w.least, x[1]), max(w.most, x[1])
	}
	return batches, nil
}

// Each runs the forward and the backward pass for each batch, so that the gradient is that of the
// mean over all items. forward returns the losses of the first of the given batches and of any
// number of the batches that follow it. Gradients are averaged over the ranks only in the last
// pass, or in each pass if the strategy requires that. A rank with fewer batches takes part in
// the averaging. Each returns the sum of this rank's losses.
func (w *Window[B]) Each(ctx context.Context, forward func(context.Context, []B) ([]*tensor.Tensor, error)) (float64, error) {
	r := w.r
	var modules []tensor.Module
	for _, m := range r.Group.Modules {
		modules = append(modules, m.Module)
	}
	scale := r.ItemScale(w.Items) / float32(r.Rule.Steps)
	total := 0.0
	each := r.Group.NoSync() != nil
	for done := 0; done < len(w.Batches); {
		batches := w.Batches[done:]
		if each {
			batches = batches[:1]
		}
		losses, err := forward(ctx, batches)
		switch {
		case err != nil:
			return total, err
		case len(losses) == 0 || slices.Contains(losses, nil):
			return total, errors.New("train: backward: no loss")
		case len(losses) > len(batches):
			return total, fmt.Errorf("train: backward: got %d losses of %d batches", len(losses), len(batches))
		}
		for _, loss := range losses {
			if loss.Len() == 1 { // backward rejects any other shape
				total += float64(loss.Item())
			}
			done++
			one := func() error { return r.backward(ctx, loss, scale) }
			if each || done == len(w.Batches) {
				err = one()
			} else {
				err = r.WithSync(modules, false, one)
			}
			if err != nil {
				return total, err
			}
		}
	}
	r.Position.Sync, r.Position.Ended = true, true
	missing := max(0, 1-len(w.Batches))
	if each {
		missing = w.most - len(w.Batches)
	}
	if missing == 0 || r.Comm.Size() == 1 {
		return total, nil
	}
	reached := make([]bool, len(r.Group.Modules))
	for i := range reached {
		reached[i] = true
	}
	for range missing {
		if err := r.Group.Average(ctx, reached); err != nil {
			return total, err
		}
	}
	return total, nil
}
