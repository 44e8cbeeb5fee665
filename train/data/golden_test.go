package data

import (
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

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
		var order Sampler = SequentialSampler(c.N)
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
	s := NewSeedableRandomSampler(int(c.N), uint64(c.DataSeed))
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
