package train

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

type outputs struct {
	Labels []int
	Scores Array
	Extra  map[string][]bool
}

func TestGatherNested(t *testing.T) {
	world(t, 2, func(ctx context.Context, a *Accelerator) error {
		r := a.ProcessIndex()
		x := outputs{[]int{r, r + 10}, Array{Data: []float32{float32(r)}, Shape: []int{1, 1}}, map[string][]bool{"b": {r == 0}, "a": {true}}}
		want := outputs{[]int{0, 10, 1, 11}, Array{Data: []float32{0, 1}, Shape: []int{2, 1}}, map[string][]bool{"b": {true, false}, "a": {true, true}}}
		got, err := Gather(ctx, a, x)
		if err := first(err, sameValue(want, got)); err != nil {
			return err
		}
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		scalar, err := Gather(ctx, a, tape.Scalar(float32(r)))
		if err != nil || !reflect.DeepEqual(scalar.Shape(), []int{2}) || scalar.Data()[1] != 1 {
			return fmt.Errorf("a scalar is gathered as %v, %v", scalar, err)
		}
		mean, err := Reduce(ctx, a, scalar, ReduceMean)
		if err != nil || mean.Data()[1] != 1 {
			return fmt.Errorf("a mean of %v, %v", mean, err)
		}
		most, err := Reduce(ctx, a, []int{r, -r}, ReduceMax)
		return first(err, sameValue([]int{1, 0}, most))
	})
}

func TestExchangesRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(context.Context, *Accelerator) error
		want string
	}{
		"shapes": {func(ctx context.Context, a *Accelerator) error {
			_, err := Gather(ctx, a, make([]int, 1+a.ProcessIndex()))
			return err
		}, "pad them first"},
		"text": {func(ctx context.Context, a *Accelerator) error {
			_, err := Gather(ctx, a, map[string]any{"x": []any{"a"}})
			return err
		}, `the value["x"][0] is a string`},
		"a mean of integers": {func(ctx context.Context, a *Accelerator) error {
			_, err := Reduce(ctx, a, []int{1}, ReduceMean)
			return err
		}, "no mean"},
		"shapes to reduce": {func(ctx context.Context, a *Accelerator) error {
			_, err := Reduce(ctx, a, make([]float32, 1+a.ProcessIndex()), ReduceSum)
			return err
		}, "got shape [2] on rank 1"},
		"a reduction": {func(ctx context.Context, a *Accelerator) error {
			_, err := Reduce(ctx, a, []int{1}, "median")
			return err
		}, `"median"`},
		"an array that is not whole": {func(ctx context.Context, a *Accelerator) error {
			_, err := Gather(ctx, a, Array{Data: []float32{1}, Shape: []int{2}})
			return err
		}, "do not have the shape"},
		"a padding that does not fit": {func(ctx context.Context, a *Accelerator) error {
			_, err := PadAcrossProcesses(ctx, a, make([]uint8, 1+a.ProcessIndex()), PadOptions{Index: -100})
			return err
		}, "-100 is not a uint8"},
		"a number to split": {func(_ context.Context, a *Accelerator) error {
			_, err := SplitBetweenProcesses(a, 3, false)
			return err
		}, "cannot be split"},
		"an object for metrics": {func(ctx context.Context, a *Accelerator) error {
			_, err := GatherForMetrics(ctx, a, "text")
			return err
		}, "want arrays or a list"},
		"a root that is not there": {func(ctx context.Context, a *Accelerator) error {
			_, err := Broadcast(ctx, a, []int{1}, 5)
			return err
		}, "rank 5"},
	} {
		err := launch(t, 2, Config{}, c.f)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

// A single number cannot be cut: the reference hides that, the correction says so.
func TestGatherForMetricsErrors(t *testing.T) {
	for _, c := range []struct {
		c     Corrections
		fails bool
	}{{Corrections{}, false}, {Corrected(), true}} {
		a, err := New(Config{Corrections: c.c})
		if err != nil {
			t.Fatal(err)
		}
		l := indices(3, 2)
		if err := a.Prepare(l); err != nil {
			t.Fatal(err)
		}
		for _, err := range l.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			x, err := GatherForMetrics(t.Context(), a, Array{Data: []float32{5}})
			if failed := err != nil; failed != (c.fails && a.EndOfDataloader()) || len(x.Data) != 1 {
				t.Errorf("%+v: %v, %v at the end: %v", c.c, x, err, a.EndOfDataloader())
			}
		}
	}
}

func TestObjectsKeepTheirTypes(t *testing.T) {
	type answer struct {
		Text string
		OK   *bool
	}
	world(t, 2, func(ctx context.Context, a *Accelerator) error {
		all, err := GatherForMetrics(ctx, a, []answer{{Text: fmt.Sprint(a.ProcessIndex()), OK: new(true)}})
		if err != nil || len(all) != 2 || all[1].Text != "1" || !*all[0].OK {
			return fmt.Errorf("%+v, %v", all, err)
		}
		none, err := GatherForMetrics(ctx, a, []string{"x"}[a.ProcessIndex():])
		return first(err, sameValue([]string{"x"}, none))
	})
}
