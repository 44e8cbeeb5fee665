package train

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/nested"
)

// GatherForMetrics is like [Gather]. At the end of the active loader it also removes the samples
// that were repeated to fill the last batch. A list whose elements are not arrays is gathered as by
// [GatherObject] and cut by the number of objects; it must have one object per sample.
//
// If cutting fails, Accelerate hides the error and returns the padding as well, and so does
// GatherForMetrics by default. With [Corrections].MetricErrors it returns the error. If the loader
// does not know how many samples are padding (see [Accelerator.Remainder]), nothing is cut, and
// [Accelerator.Logger] gets a message.
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

// rowsForMetrics returns how many of this step's gathered samples to keep, and whether to cut.
func (a *Accelerator) rowsForMetrics(ctx context.Context) (int, bool) {
	if !a.rank.Position.AtEnd() {
		return 0, false
	}
	n := a.rank.Position.Remainder()
	if n < 0 {
		a.logger.InfoContext(ctx, "the loader does not know how many of its last samples are padding: metrics may count some twice")
	}
	return n, n > 0
}

func gatherObjects[T any](ctx context.Context, a *Accelerator, x T) (T, error) {
	v := reflect.ValueOf(x)
	if !v.IsValid() || v.Kind() != reflect.Slice {
		return x, fmt.Errorf("train: gather for metrics: got a %T, want arrays or a list of objects", x)
	}
	if a.rank.Comm.Size() > 1 {
		all, err := collective.AllGather(ctx, a.rank.Comm, x)
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
		return x, fmt.Errorf("train: gather for metrics: got a %T, want a list of objects", x)
	}
	return out, nil
}

// GatherObjectForMetrics is [GatherForMetrics] that treats every list as objects, lists of arrays
// too: Accelerate's use_gather_object.
func GatherObjectForMetrics[T any](ctx context.Context, a *Accelerator, xs []T) ([]T, error) {
	return gatherObjects(ctx, a, xs)
}
