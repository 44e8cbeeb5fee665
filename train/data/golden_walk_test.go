package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/heftai/heft/internal/collective"
	"reflect"
	"testing"
)

func numbers(n int) Slice[int] {
	s := make(Slice[int], n)
	for i := range s {
		s[i] = i
	}
	return s
}

// unsized hides the length of a stream.
type unsized struct{ Stream[int] }

func (c loaderCase) loader(t *testing.T) *Loader[[]int] {
	t.Helper()
	o := Options{BatchSize: int(c.BatchSize), DropLast: c.Drop}
	switch c.Dataset {
	case "iterable":
		return must(NewStreamLoader(Stream[int](unsized{numbers(int(c.N))}), Samples, o))
	case "iterable_sized":
		return must(NewStreamLoader(Stream[int](numbers(int(c.N))), Samples, o))
	case "map", "":
		return must(NewLoader(numbers(int(c.N)), Samples, o))
	}
	t.Fatalf("an unknown kind of data set, %q", c.Dataset)
	return nil
}

// rankOf is a rank that needs to hear nothing of the others.
type rankOf struct{ rank, size int }

func (r rankOf) Rank() int { return r.rank }
func (r rankOf) Size() int { return r.size }
func (r rankOf) Broadcast(_ context.Context, _ int, b []byte) ([]byte, error) {
	return b, nil
}

func (c loaderCase) checkPrepared(t *testing.T) {
	for r, want := range c.RankResults {
		l := c.loader(t)
		err := l.Prepare(PrepareOptions{Comm: rankOf{r, int(c.Ranks)}, SplitBatches: c.Split, UnevenBatches: !c.even(), Dispatch: DispatchNever})
		if want.Error != "" || err != nil {
			if want.Error == "" || err == nil {
				t.Errorf("rank %d: error %v, the reference's is %q", r, err, want.Error)
			}
			continue
		}
		checkLength(t, r, "length", want.Len, first2(l.Len()))
		checkLength(t, r, "total batch size", want.TotalBatchSize, fmt.Sprint(l.TotalBatchSize()))
		checkLength(t, r, "total length", want.TotalDatasetLength, first2(l.DatasetLen()))
		if c.Skip != nil {
			l = SkipFirstBatches(l, int(*c.Skip))
			checkLength(t, r, "length after skip", want.LenAfterSkip, first2(l.Len()))
		}
		epochs := want.Epochs
		if want.Identical && len(epochs) == 1 {
			epochs = append(epochs, epochs[0])
		}
		for e, steps := range epochs {
			var batches [][]int
			var ends []bool
			var remainders []int
			for _, s := range steps {
				batches = append(batches, ints(s.Batch))
				ends = append(ends, s.End)
				remainders = append(remainders, int(s.Remainder))
			}
			walk(t, l).check(t, fmt.Sprintf("rank %d, epoch %d", r, e), batches, ends, remainders)
		}
	}
}

// first2 is a length as the reference prints it, an exception by its name.
func first2(n int, err error) string {
	switch {
	case errors.Is(err, ErrNoLength):
		return "TypeError"
	case errors.Is(err, ErrNegativeLength):
		return "ValueError"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprint(n)
}

func checkLength(t *testing.T, rank int, what string, want json.RawMessage, got string) {
	t.Helper()
	w := number(want)
	if w == "" || w == "null" {
		return
	}
	if got != w {
		t.Errorf("rank %d: %s %s, want %s", rank, what, got, w)
	}
}

// number prints a JSON number without a fraction, or a string without quotes.
func number(raw json.RawMessage) string {
	var f float64
	var s string
	switch {
	case json.Unmarshal(raw, &f) == nil:
		return fmt.Sprint(int(f))
	case json.Unmarshal(raw, &s) == nil:
		return s
	}
	return string(raw)
}

type walked struct {
	batches    [][]int
	ends       []bool
	remainders []int
	err        error
}

func walk(t *testing.T, l *Loader[[]int]) walked {
	t.Helper()
	w := record(t.Context(), l)
	if w.err != nil {
		t.Error(w.err)
	}
	return w
}

func record(ctx context.Context, l *Loader[[]int]) walked {
	var w walked
	for b, err := range l.All(ctx) {
		if err != nil {
			w.err = err
			break
		}
		w.batches = append(w.batches, b)
		w.ends = append(w.ends, l.EndOfDataloader())
		w.remainders = append(w.remainders, l.Remainder())
	}
	return w
}

func (w walked) check(t *testing.T, where string, batches [][]int, ends []bool, remainders []int) {
	t.Helper()
	if !same(w.batches, batches) {
		t.Errorf("%s: batches %v, want %v", where, w.batches, batches)
	}
	if !same(w.ends, ends) {
		t.Errorf("%s: end flags %v, want %v", where, w.ends, ends)
	}
	if !same(w.remainders, remainders) {
		t.Errorf("%s: remainders %v, want %v", where, w.remainders, remainders)
	}
}

// checkGathered runs the loaders of all ranks in a world, and the rule that trims what
// they gather.
func (c loaderCase) checkGathered(t *testing.T) {
	ranks := int(c.Ranks)
	walks := make([]walked, ranks)
	lens := make([]string, ranks)
	kinds := make([]string, ranks)
	err := collective.Launch(t.Context(), ranks, func(ctx context.Context, world collective.Comm) error {
		l := c.loader(t)
		o := PrepareOptions{Comm: world, SplitBatches: c.Split, UnevenBatches: !c.even()}
		if c.DispatchAll != nil {
			o.Dispatch = map[bool]Dispatch{false: DispatchNever, true: DispatchAlways}[*c.DispatchAll]
		}
		if err := l.Prepare(o); err != nil {
			walks[world.Rank()].err = err
			return nil
		}
		if c.Skip != nil {
			l = SkipFirstBatches(l, int(*c.Skip))
		}
		r := world.Rank()
		kinds[r], lens[r] = "shard", first2(l.Len())
		if l.Dispatches() {
			kinds[r] = "dispatcher"
		}
		walks[r] = record(ctx, l)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for r, want := range c.RankResults {
		w := walks[r]
		if want.Error != "" {
			if w.err == nil {
				t.Errorf("rank %d: no error, the reference's is %q", r, want.Error)
			}
			continue
		}
		if w.err != nil {
			t.Errorf("rank %d: %v", r, w.err)
		}
		checkLength(t, r, "length", want.Len, lens[r])
		if want.Loader != kinds[r] {
			t.Errorf("rank %d: a %s, want a %s", r, kinds[r], want.Loader)
		}
		var remainders []int
		for _, x := range want.Remainder {
			remainders = append(remainders, int(x))
		}
		w.check(t, fmt.Sprintf("rank %d", r), ints2(want.Batches), want.End, remainders)
	}
	c.checkTrim(t, walks)
}

// at is a loader's state in one step.
type at struct {
	end       bool
	remainder int
}

func (a at) EndOfDataloader() bool { return a.end }
func (a at) Remainder() int        { return a.remainder }

func (c loaderCase) checkTrim(t *testing.T, walks []walked) {
	for i, want := range c.ForMetrics {
		var rows []int
		var objects []string
		batches := 0
		var state LoaderState
		for _, w := range walks {
			if i >= len(w.batches) {
				t.Errorf("step %d was not walked", i)
				return
			}
			state = at{w.ends[i], w.remainders[i]}
			rows = append(rows, w.batches[i]...)
			batches++
		}
		for _, x := range rows {
			objects = append(objects, fmt.Sprint("s", x))
		}
		if i < len(c.Gather) && !same(rows, ints(c.Gather[i])) {
			t.Errorf("step %d gathers %v, want %v", i, rows, c.Gather[i])
		}
		if got := TrimForMetrics(state, rows); !same(got, ints(want)) {
			t.Errorf("step %d leaves %v for metrics, want %v", i, got, want)
		}
		if i < len(c.PerSample) {
			if got := TrimForMetrics(state, objects); !same(got, c.PerSample[i]) {
				t.Errorf("step %d leaves objects %v, want %v", i, got, c.PerSample[i])
			}
		}
		if i < len(c.PerBatch) {
			var list []json.RawMessage
			decode(t, c.PerBatch[i], &list)
			if got := RowsForMetrics(state, batches); got != len(list) {
				t.Errorf("step %d leaves %d objects of one batch each, want %d", i, got, len(list))
			}
		}
	}
}

func prepare(t *testing.T, l *Loader[[]int], o PrepareOptions) {
	t.Helper()
	if err := l.Prepare(o); err != nil {
		t.Fatal(err)
	}
}

func decode(t *testing.T, raw json.RawMessage, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// same compares, with nil equal to empty.
func same[T any](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := reflect.ValueOf(a[i]), reflect.ValueOf(b[i])
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

func ints(x []integer) []int {
	out := make([]int, len(x))
	for i, v := range x {
		out[i] = int(v)
	}
	return out
}

func ints2(x [][]integer) [][]int {
	out := make([][]int, len(x))
	for i, v := range x {
		out[i] = ints(v)
	}
	return out
}
