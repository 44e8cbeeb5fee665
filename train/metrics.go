package train

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/nested"
)

// GatherForMetrics is [Gather] that drops, at the end of the active loader, the samples
// that were repeated to fill up its last batch. A list of what is no array is gathered
// as [GatherObject] does, and cut by the number of objects: give one for each sample.
//
// The reference hides what goes wrong in cutting, and returns the padding with the
// rest; so does this by default. With [Corrections].MetricErrors it is an error. Where
// the loader does not know how many samples are padding (see [Accelerator.Remainder])
// nothing is cut, with a message to [Accelerator.Logger].
func GatherForMetrics[T any](ctx context.Context, a *Accelerator, x T) (T, error) {
	if !nested.HasArrays(x) {
		return gatherObjects(ctx, a, x)
	}
	all, err := Gather(ctx, a, x)
	if err != nil {
		return all, err
	}
	n, cut := a.rowsForMetrics(ctx)
	if !cut {
		return all, nil
	}
	rest, err := nested.Map(all, func(l nested.Leaf) (nested.Leaf, error) {
		if len(l.Shape) == 0 {
			return l, errors.New("a single number has no samples to cut")
		}
		return l.Rows(0, min(n, l.Shape[0])), nil
	})
	if err == nil {
		return rest, nil
	}
	if a.cfg.Corrections.MetricErrors {
		return all, wrap("gather for metrics", err)
	}
	return all, nil
}

// rowsForMetrics says whether this step's gathered samples are to be cut, and to how
// many.
func (a *Accelerator) rowsForMetrics(ctx context.Context) (int, bool) {
	if !a.state.AtEnd() {
		return 0, false
	}
	n := a.state.Remainder()
	if n < 0 {
		a.logger.InfoContext(ctx, "the loader does not know how many of its last samples are padding: metrics may count some twice")
	}
	return n, n > 0
}

func gatherObjects[T any](ctx context.Context, a *Accelerator, x T) (T, error) {
	v := reflect.ValueOf(x)
	if !v.IsValid() || v.Kind() != reflect.Slice {
		return x, fmt.Errorf("train: gather for metrics: a %T is neither arrays nor a list of objects", x)
	}
	if a.comm.Size() > 1 {
		all, err := collective.AllGather(ctx, a.comm, x)
		if err != nil {
			return x, wrap("gather for metrics", err)
		}
		v = reflect.MakeSlice(v.Type(), 0, v.Len()*len(all))
		for _, part := range all {
			v = reflect.AppendSlice(v, reflect.ValueOf(part))
		}
	}
	if n, cut := a.rowsForMetrics(ctx); cut {
		v = v.Slice(0, min(n, v.Len()))
	}
	out, ok := v.Interface().(T)
	if !ok {
		return x, fmt.Errorf("train: gather for metrics: a %T is no list of objects", x)
	}
	return out, nil
}

// GatherObjectForMetrics is [GatherForMetrics] that takes anything for objects, arrays
// too: use_gather_object in the reference.
func GatherObjectForMetrics[T any](ctx context.Context, a *Accelerator, xs []T) ([]T, error) {
	return gatherObjects(ctx, a, xs)
}
