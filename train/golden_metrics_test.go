package train

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"strconv"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/data"
)

func TestGoldenGatherForMetrics(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/dataloader/gather_for_metrics", n) })
	for _, path := range golden.Glob(t, "train/dataloader/gather_for_metrics_*.json") {
		var file struct{ Cases []metricsCase }
		golden.JSON(t, path, &file)
		for i := range file.Cases {
			c := &file.Cases[i]
			n++
			t.Run(fmt.Sprintf("p%v/%d/%s,n=%v,batch=%v", c.World, i, c.Dataset, c.N, c.BatchSize), func(t *testing.T) {
				t.Parallel()
				if err := c.run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

type metricsCase struct {
	Dataset   string
	N         float64
	BatchSize float64  `json:"batch_size"`
	Split     bool     `json:"split_batches"`
	Even      *bool    `json:"even_batches"`
	Drop      bool     `json:"drop_last"`
	Dispatch  *bool    `json:"dispatch_batches"`
	World     float64  `json:"num_processes"`
	Skip      *float64 `json:"skip_first_batches"` // 0 is not none: it hides the remainder

	Gathered   [][]float64       `json:"gather"`
	ForMetrics [][]float64       `json:"gather_for_metrics"`
	PerSample  [][]string        `json:"gather_object_per_sample"`
	PerBatch   [][]metricsObject `json:"gather_object_per_batch"`
	AsObject   [][]any           `json:"gather_tensor_as_object"`
	Ragged     []float64         `json:"ragged_sizes_by_rank"`
	Ranks      []struct {
		Batches   [][]float64
		End       []bool `json:"end_of_dataloader"`
		Remainder []float64
		Error     string
	}
}

type metricsObject struct {
	IDs []float64 `json:"ids"`
}

// endless is a stream that does not say its length, as a Slice does.
type endless struct{ s data.Slice[int] }

func (e endless) Samples() iter.Seq2[int, error] { return e.s.Samples() }

func (c *metricsCase) loader() (*data.Loader[[]int], error) {
	s := make(data.Slice[int], int(c.N))
	for i := range s {
		s[i] = i
	}
	o := data.Options{BatchSize: int(c.BatchSize), DropLast: c.Drop}
	switch c.Dataset {
	case "iterable":
		return data.NewStreamLoader(data.Stream[int](endless{s}), data.Samples[int], o)
	case "iterable_sized":
		return data.NewStreamLoader(data.Stream[int](s), data.Samples[int], o)
	}
	return data.NewLoader(s, data.Samples[int], o)
}

func (c *metricsCase) run(ctx context.Context) error {
	err := onRanks(ctx, int(c.World), func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Logger: slog.New(slog.DiscardHandler),
			DataLoader: DataLoaderConfig{SplitBatches: c.Split, EvenBatches: c.Even, DispatchBatches: c.Dispatch}})
		if err != nil {
			return err
		}
		l, err := c.loader()
		if err != nil {
			return err
		}
		if err := a.Prepare(l); err != nil {
			return err
		}
		if c.Skip != nil {
			l = SkipFirstBatches(l, int(*c.Skip))
		}
		want, i := c.Ranks[w.Rank()], 0
		for b, err := range l.All(ctx) {
			if err != nil {
				return err
			}
			if i == len(want.Batches) {
				return fmt.Errorf("more than %d batches", i)
			}
			err = first(sameFloats("batch", want.Batches[i], b),
				check("EndOfDataloader", &want.End[i], a.EndOfDataloader()),
				check("Remainder", &want.Remainder[i], float64(a.Remainder())))
			if err == nil && c.Gathered != nil {
				err = c.step(ctx, a, i, b)
			}
			if err != nil {
				return fmt.Errorf("step %d: %w", i, err)
			}
			i++
		}
		if i != len(want.Batches) {
			return fmt.Errorf("%d batches, want %d", i, len(want.Batches))
		}
		return nil
	})
	for _, r := range c.Ranks {
		if r.Error != "" {
			if err == nil {
				return fmt.Errorf("no error, want %s", r.Error)
			}
			return nil
		}
	}
	return err
}

// step compares all ways to gather one batch.
func (c *metricsCase) step(ctx context.Context, a *Accelerator, i int, b []int) error {
	all, err := Gather(ctx, a, b)
	if err := first(err, sameFloats("Gather", c.Gathered[i], all)); err != nil {
		return err
	}
	all, err = GatherForMetrics(ctx, a, b)
	if err := first(err, sameFloats("GatherForMetrics", c.ForMetrics[i], all)); err != nil {
		return err
	}
	var names, wide []string
	for _, id := range b {
		names = append(names, "s"+strconv.Itoa(id))
	}
	if wide, err = GatherForMetrics(ctx, a, names); err != nil {
		return err
	}
	if len(wide)+len(c.PerSample[i]) > 0 && !reflect.DeepEqual(wide, c.PerSample[i]) {
		return fmt.Errorf("objects are %v, want %v", wide, c.PerSample[i])
	}
	object := metricsObject{IDs: []float64{}}
	for _, id := range b {
		object.IDs = append(object.IDs, float64(id))
	}
	objects, err := GatherObjectForMetrics(ctx, a, []metricsObject{object})
	if err != nil {
		return err
	}
	if fmt.Sprint(objects) != fmt.Sprint(c.PerBatch[i]) {
		return fmt.Errorf("objects of a batch are %v, want %v", objects, c.PerBatch[i])
	}
	tensors, err := GatherObjectForMetrics(ctx, a, [][]float64{object.IDs})
	if err != nil {
		return err
	}
	if fmt.Sprint(tensors) != fmt.Sprint(c.AsObject[i]) {
		return fmt.Errorf("tensors as objects are %v, want %v", tensors, c.AsObject[i])
	}
	return nil
}

func sameFloats(what string, want []float64, got []int) error {
	wide := make([]float64, len(got))
	for i, v := range got {
		wide[i] = float64(v)
	}
	if len(want)+len(wide) > 0 && !reflect.DeepEqual(want, wide) {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
