package train

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// failing is a data set whose sample n cannot be read.
type failing struct{ n, len int }

var errSample = errors.New("the sample is gone")

func (f failing) Len() int { return f.len }

func (f failing) At(i int) (int, error) {
	if i == f.n {
		return 0, errSample
	}
	return i, nil
}

// TestBatchesDefersErrors: a loop over batches has one error, after it.
func TestBatchesDefersErrors(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	walk := func(n, stop int) (seen []int, err error) {
		l, err := data.NewLoader[int, []int](failing{n, 4}, func(s []int) ([]int, error) { return s, nil }, data.Options{BatchSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.PrepareDataLoader(l); err != nil {
			t.Fatal(err)
		}
		for batch := range BatchesOf(context.Background(), a, l) {
			if seen = append(seen, batch...); len(seen) == stop {
				break
			}
		}
		return seen, a.Err()
	}
	if seen, err := walk(-1, 0); err != nil || !slices.Equal(seen, []int{0, 1, 2, 3}) {
		t.Errorf("a whole walk: %v, %v", seen, err)
	}
	if seen, err := walk(-1, 2); err != nil || len(seen) != 2 {
		t.Errorf("a walk that is left: %v, %v", seen, err)
	}
	if _, err := walk(2, 0); !errors.Is(err, errSample) {
		t.Errorf("a walk that fails: %v", err)
	}
	if err := a.Err(); err != nil {
		t.Errorf("the error is returned twice: %v", err)
	}
}

// TestPrepareByType: the results of the typed methods are prepared, and an optimizer without parameters is
// rejected.
func TestPrepareByType(t *testing.T) {
	a, err := New(Config{GradientAccumulationSteps: 2})
	if err != nil {
		t.Fatal(err)
	}
	w := tensor.NewParameter([]float32{1}, 1)
	sgd, err := optim.NewSGD(Params(w), optim.SGDOptions{LR: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.PrepareModel(w); err != nil {
		t.Fatal(err)
	}
	opt, err := a.PrepareOptimizer(sgd)
	if _, ok := opt.(*optim.Prepared); !ok || err != nil {
		t.Errorf("optimizer %T, %v", opt, err)
	}
	sched, err := a.PrepareScheduler(optim.NewLambda(opt, optim.Constant()))
	if _, ok := sched.(*optim.PreparedScheduler); !ok || err != nil {
		t.Errorf("scheduler %T, %v", sched, err)
	}
	none, err := optim.NewSGD(nil, optim.SGDOptions{LR: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.PrepareOptimizer(none); err == nil || !strings.Contains(err.Error(), "the optimizer has no parameters") {
		t.Errorf("without parameters: %v", err)
	}
}
