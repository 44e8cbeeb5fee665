package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A loaderCase is any case of train/dataloader: which fields are there says of what.
type loaderCase struct {
	Kind, Dataset string
	N             integer
	BatchSize     integer `json:"batch_size"`
	Ranks         integer `json:"num_processes"`
	Split         bool    `json:"split_batches"`
	Even          *bool   `json:"even_batches"`
	Drop          bool    `json:"drop_last"`
	DispatchAll   *bool   `json:"dispatch_batches"`
	Order         []integer
	Batches       [][]integer
	Len           []json.RawMessage
	Shards        [][][]integer
	Samples       [][]integer
	Error         string
	Skip          *integer `json:"skip_first_batches"`
	PlainSkip     integer  `json:"skip"`
	Type          string
	DataSeed      integer `json:"data_seed"`
	Epochs        json.RawMessage
	EpochAfter    integer           `json:"epoch_after"`
	EpochsByRank  [][][][]integer   `json:"epochs_by_rank"`
	RankResults   []rankCase        `json:"ranks"`
	Expected      json.RawMessage   `json:"expected"`
	ExpectedError string            `json:"expected_error_contains"`
	Gather        [][]integer       `json:"gather"`
	ForMetrics    [][]integer       `json:"gather_for_metrics"`
	PerSample     [][]string        `json:"gather_object_per_sample"`
	PerBatch      []json.RawMessage `json:"gather_object_per_batch"`
}

type rankCase struct {
	Len                json.RawMessage
	TotalBatchSize     json.RawMessage `json:"total_batch_size"`
	TotalDatasetLength json.RawMessage `json:"total_dataset_length"`
	LenAfterSkip       json.RawMessage `json:"len_after_skip"`
	Epochs             [][]stepCase
	Identical          bool `json:"epochs_identical"`
	Error              string
	Loader             string
	Batches            [][]integer
	End                []bool    `json:"end_of_dataloader"`
	Remainder          []integer `json:"remainder"`
}

type stepCase struct {
	Batch     []integer
	End       bool `json:"end_of_dataloader"`
	Remainder integer
}

// integer accepts 3 and 3.0.
type integer int

func (i *integer) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*i = integer(f)
	return nil
}

func TestGoldenLoaders(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/dataloader/*.json") {
		var file struct{ Cases, Plain []loaderCase }
		golden.JSON(t, path, &file)
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		for i, c := range file.Cases {
			n++
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) { c.check(t, name) })
		}
		for i, c := range file.Plain {
			n++
			t.Run(fmt.Sprintf("%s/plain %d", name, i), func(t *testing.T) { c.checkPlain(t) })
		}
	}
	golden.Count(t, "train/dataloader", n)
}

func (c loaderCase) check(t *testing.T, file string) {
	switch {
	case c.Kind == "seedable_random_sampler":
		c.checkSampler(t)
	case c.Kind == "prepared_shuffled_loader":
		c.checkShuffled(t)
	case c.Kind != "":
		c.checkOwnTest(t)
	case strings.HasPrefix(file, "batch_sampler_shard"), strings.HasPrefix(file, "dynamic_batch_sampler_shard"):
		c.checkBatchShard(t)
	case strings.HasPrefix(file, "iterable_dataset_shard"):
		c.checkStreamShard(t)
	case strings.HasPrefix(file, "prepare_data_loader"), strings.HasPrefix(file, "skip_first_batches"):
		c.checkPrepared(t)
	case strings.HasPrefix(file, "gather_for_metrics"):
		c.checkGathered(t)
	default:
		t.Errorf("no test knows a case of %s", file)
	}
}

func (c loaderCase) even() bool { return c.Even == nil || *c.Even }

// listed are batches given in full, of no common size.
type listed struct {
	batches [][]int
	drop    bool
}

func (l listed) Len() int       { return len(l.batches) }
func (l listed) BatchSize() int { return 0 }
func (l listed) DropLast() bool { return l.drop }
func (l listed) Batches() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for _, b := range l.batches {
			if !yield(append([]int(nil), b...)) {
				return
			}
		}
	}
}

// given is an order of indices.
type given []int

func (g given) Len() int { return len(g) }
func (g given) Indices() iter.Seq[int] {
	return func(yield func(int) bool) { each(g, yield) }
}

func (c loaderCase) shards(t *testing.T) ([]*BatchShard, error) {
	t.Helper()
	var of BatchSampler = listed{ints2(c.Batches), c.Drop}
	if c.BatchSize > 0 {
		var order Sampler = Sequential(c.N)
		if c.Order != nil {
			order = given(ints(c.Order))
		}
		var err error
		if of, err = NewBatchSampler(order, int(c.BatchSize), c.Drop); err != nil {
			t.Fatal(err)
		}
	}
	var all []*BatchShard
	for r := range int(c.Ranks) {
		s, err := NewBatchShard(of, Shard{r, int(c.Ranks), c.Split, !c.even()})
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (c loaderCase) checkBatchShard(t *testing.T) {
	shards, err := c.shards(t)
	if c.Error != "" || err != nil {
		if c.Error == "" || err == nil {
			t.Errorf("error %v, the reference's is %q", err, c.Error)
		}
		return
	}
	for r, s := range shards {
		if want := ints2(c.Shards[r]); !same(collect(s), want) {
			t.Errorf("rank %d: %v, want %v", r, collect(s), want)
		}
		if got, want := fmt.Sprint(s.Len()), number(c.Len[r]); got != want {
			t.Errorf("rank %d: length %s, want %s", r, got, want)
		}
	}
}

func collect(s BatchSampler) [][]int {
	var all [][]int
	for b := range s.Batches() {
		all = append(all, b)
	}
	return all
}

func (c loaderCase) checkStreamShard(t *testing.T) {
	want := c.Samples
	if want == nil && c.Expected != nil {
		decode(t, c.Expected, &want)
	}
	for r := range int(c.Ranks) {
		s, err := NewStreamShard(Stream[int](numbers(int(c.N))), int(c.BatchSize), c.Drop, Shard{Rank: r, Size: int(c.Ranks), SplitBatches: c.Split})
		if c.Error != "" || err != nil {
			if c.Error == "" || err == nil {
				t.Errorf("error %v, the reference's is %q", err, c.Error)
			}
			return
		}
		var got []int
		for x := range s.Samples() {
			got = append(got, x)
		}
		if !same(got, ints(want[r])) {
			t.Errorf("rank %d: %v, want %v", r, got, want[r])
		}
		if c.Len == nil {
			continue
		}
		if n, _ := s.Length(); fmt.Sprint(n) != number(c.Len[r]) {
			t.Errorf("rank %d: length %d, want %s", r, n, c.Len[r])
		}
	}
}

func (c loaderCase) checkSampler(t *testing.T) {
	var want [][]integer
	decode(t, c.Epochs, &want)
	s := NewSeedableRandom(int(c.N), uint64(c.DataSeed))
	for e := range want {
		var got []int
		for i := range s.Indices() {
			got = append(got, i)
		}
		if !same(got, ints(want[e])) {
			t.Errorf("epoch %d: %v, want %v", e, got, want[e])
		}
	}
	if s.Epoch() != int(c.EpochAfter) {
		t.Errorf("after %d epochs the epoch is %d, want %d", len(want), s.Epoch(), c.EpochAfter)
	}
}

func (c loaderCase) checkShuffled(t *testing.T) {
	for r := range int(c.Ranks) {
		l := must(NewLoader(numbers(int(c.N)), Samples, Options{BatchSize: int(c.BatchSize), Shuffle: true}))
		prepare(t, l, PrepareOptions{Comm: rankOf{r, int(c.Ranks)}, UseSeedableSampler: true, DataSeed: uint64(c.DataSeed)})
		for e, want := range c.EpochsByRank[r] {
			if got := walk(t, l); !same(got.batches, ints2(want)) {
				t.Errorf("rank %d, epoch %d: %v, want %v", r, e, got.batches, want)
			}
		}
	}
}

func (c loaderCase) checkPlain(t *testing.T) {
	l := c.loader(t)
	skipped := SkipFirstBatches(l, int(c.PlainSkip))
	if got := walk(t, skipped); !same(got.batches, ints2(c.Batches)) {
		t.Errorf("%v, want %v", got.batches, c.Batches)
	}
}

// checkOwnTest runs what accelerate's own tests record.
func (c loaderCase) checkOwnTest(t *testing.T) {
	switch c.Kind {
	case "batch_sampler_shard", "dynamic_batches":
		decode(t, c.Expected, &c.Shards)
		shards, err := c.shards(t)
		if err != nil {
			t.Fatal(err)
		}
		for r, s := range shards {
			if got := collect(s); !same(got, ints2(c.Shards[r])) {
				t.Errorf("rank %d: %v, want %v", r, got, c.Shards[r])
			}
		}
	case "iterable_dataset_shard":
		c.checkStreamShard(t)
	case "skip":
		decode(t, c.Expected, &c.Batches)
		c.checkPlain(t)
	case "end_of_dataloader":
		var want []bool
		decode(t, c.Expected, &want)
		var epochs integer
		decode(t, c.Epochs, &epochs)
		l := c.loader(t)
		prepare(t, l, PrepareOptions{})
		for e := range int(epochs) {
			if got := walk(t, l); !same(got.ends, want) {
				t.Errorf("epoch %d: %v, want %v", e, got.ends, want)
			}
		}
	case "error":
		c.N = max(c.N, 1)
		l := c.loader(t)
		if c.BatchSize == 0 {
			l = must(NewLoader(numbers(int(c.N)), Samples, Options{BatchSampler: listed{batches: [][]int{{0}}}}))
		}
		err := l.Prepare(PrepareOptions{Comm: rankOf{0, int(c.Ranks)}, SplitBatches: c.Split})
		if err == nil || !strings.Contains(err.Error(), c.ExpectedError) {
			t.Errorf("error %v, want one with %q", err, c.ExpectedError)
		}
	default:
		t.Errorf("an unknown kind of test, %q", c.Kind)
	}
}

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
		var state State
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
