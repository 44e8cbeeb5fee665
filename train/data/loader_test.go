package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/rng"
)

// The orders of this test were printed by torch 2.15's DataLoader.
func TestShuffledLoadersFollowTorch(t *testing.T) {
	for _, c := range []struct {
		name string
		o    func() Options
		want [][][]int
	}{
		{"own generator", func() Options { return Options{Generator: rng.New(11)} },
			[][][]int{{{0, 6, 5}, {1, 3, 2}, {4}}, {{4, 0, 5}, {1, 3, 2}, {6}}}},
		{"global generator", func() Options { return Options{Global: rng.New(7)} },
			[][][]int{{{2, 0, 5}, {6, 3, 4}, {1}}, {{4, 3, 2}, {1, 5, 0}, {6}}}},
	} {
		for _, workers := range []int{0, 2} {
			o := c.o()
			o.BatchSize, o.Shuffle, o.Workers = 3, true, workers
			l := must(NewLoader(numbers(7), Samples, o))
			for e, want := range c.want {
				if got := walk(t, l).batches; !same(got, want) {
					t.Errorf("%s, %d workers, epoch %d: %v, want %v", c.name, workers, e, got, want)
				}
			}
			if o.Global != nil && o.Global.Float32() != 0.36531615257263184 {
				t.Errorf("%s: the global generator is elsewhere afterwards", c.name)
			}
		}
	}
	global := rng.New(7)
	l := must(NewLoader(numbers(7), Samples, Options{BatchSize: 3, Global: global}))
	walk(t, l)
	walk(t, l)
	if global.Float32() != 0.23276156187057495 {
		t.Error("a loader in order takes other numbers from the global generator than torch")
	}
}

// The orders of this test were printed by torch 2.15's RandomSampler.
func TestRandomSamplersFollowTorch(t *testing.T) {
	for _, c := range []struct {
		s    RandomSampler
		want []int
	}{
		{RandomSampler{N: 10, Global: rng.New(7)}, []int{3, 0, 1, 9, 4, 7, 2, 5, 6, 8}},
		{RandomSampler{N: 7, Samples: 17, Generator: rng.New(3)}, []int{5, 3, 4, 6, 0, 2, 1, 2, 6, 3, 1, 5, 0, 4, 0, 6, 3}},
		{RandomSampler{N: 7, Samples: 40, Replacement: true, Generator: rng.New(3)}, []int{5, 3, 3, 4, 0, 6, 2, 4, 5, 0, 6, 6, 0, 6, 6, 2, 6, 5, 6, 5,
			6, 6, 5, 0, 2, 2, 4, 5, 5, 2, 4, 1, 2, 5, 3, 5, 6, 2, 4, 4}},
		{RandomSampler{}, nil},
	} {
		var got []int
		for i := range c.s.Indices() {
			got = append(got, i)
		}
		if !same(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

func TestABrokenWalkKeepsTheSeedableOrder(t *testing.T) {
	s := NewSeedableRandomSampler(5, 1)
	for range s.Indices() {
		break
	}
	if s.Epoch() != 0 {
		t.Errorf("the epoch is %d after a walk that was left", s.Epoch())
	}
}

// slow takes its time to read, the early ones most.
type slow struct {
	Slice[int]
	running, most atomic.Int64
	broken        int
}

var errDisk = errors.New("disk on fire")

func (s *slow) At(i int) (int, error) {
	now := s.running.Add(1)
	defer s.running.Add(-1)
	for old := s.most.Load(); now > old && !s.most.CompareAndSwap(old, now); old = s.most.Load() {
	}
	time.Sleep(time.Duration(5-i%5) * 200 * time.Microsecond)
	if i == s.broken {
		return 0, errDisk
	}
	return s.Slice.At(i)
}

func TestWorkersKeepTheOrder(t *testing.T) {
	from := &slow{Slice: numbers(40), broken: -1}
	l := must(NewLoader(from, Samples, Options{BatchSize: 1, Workers: 3}))
	prepare(t, l, PrepareOptions{})
	for range 2 {
		w := walk(t, l)
		for i, b := range w.batches {
			if b[0] != i || w.ends[i] != (i == 39) {
				t.Fatalf("batch %d is %v, end %v", i, b, w.ends[i])
			}
		}
	}
	if n := from.most.Load(); n > 3 {
		t.Errorf("%d reads at once with 3 workers", n)
	}
}

func TestLeavingALoopEndsItsWorkers(t *testing.T) { // goleak looks
	l := must(NewLoader(&slow{Slice: numbers(40), broken: -1}, Samples, Options{Workers: 3, Prefetch: 7}))
	for range l.All(t.Context()) {
		break
	}
}

func TestReadErrorsNameTheSample(t *testing.T) {
	for _, workers := range []int{0, 2} {
		l := must(NewLoader(&slow{Slice: numbers(9), broken: 5}, Samples, Options{BatchSize: 2, Workers: workers}))
		prepare(t, l, PrepareOptions{})
		w := record(t.Context(), l)
		if !errors.Is(w.err, errDisk) || !strings.Contains(w.err.Error(), "sample 5") {
			t.Errorf("%d workers: error %v", workers, w.err)
		}
		if l.EndOfDataloader() {
			t.Error("a failed walk claims to have ended")
		}
	}
}

func TestAContextEndsAWalk(t *testing.T) {
	for _, workers := range []int{0, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		l := must(NewLoader(numbers(100), Samples, Options{Workers: workers, Prefetch: 1}))
		n := 0
		var err error
		for _, err = range l.All(ctx) {
			if n++; n == 3 {
				cancel()
			}
		}
		cancel()
		if !errors.Is(err, context.Canceled) || n > 10 {
			t.Errorf("%d workers: %d batches, then %v", workers, n, err)
		}
	}
}

// faulty is a stream that ends badly.
type faulty struct{}

func (faulty) Samples() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		_ = yield(1, nil) && yield(2, nil) && yield(0, errDisk)
	}
}

func TestStreamErrorsReachAllRanks(t *testing.T) {
	for _, d := range []Dispatch{DispatchStreams, DispatchNever} {
		faults := make([]error, 2)
		err := collective.Launch(t.Context(), 2, func(ctx context.Context, world collective.Comm) error {
			l := must(NewStreamLoader(Stream[int](faulty{}), Samples, Options{}))
			if err := l.Prepare(PrepareOptions{Comm: world, Dispatch: d}); err != nil {
				return err
			}
			faults[world.Rank()] = record(ctx, l).err
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for r, err := range faults {
			if err == nil || !strings.Contains(err.Error(), errDisk.Error()) {
				t.Errorf("dispatch %d, rank %d: %v", d, r, err)
			}
		}
	}
}

func TestRanksShuffleAlike(t *testing.T) {
	seen := make([][][]int, 2)
	err := collective.Launch(t.Context(), 2, func(ctx context.Context, world collective.Comm) error {
		o := Options{BatchSize: 2, Shuffle: true, Generator: rng.New(uint64(world.Rank()))} // each its own seed
		l := must(NewLoader(numbers(12), Samples, o))
		if err := l.Prepare(PrepareOptions{Comm: world}); err != nil {
			return err
		}
		for range 2 {
			w := record(ctx, l)
			if w.err != nil {
				return w.err
			}
			seen[world.Rank()] = append(seen[world.Rank()], w.batches...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range 2 {
		var met [12]bool
		for _, ranks := range seen {
			for _, b := range ranks[3*epoch : 3*epoch+3] {
				for _, i := range b {
					met[i] = true
				}
			}
		}
		if met != [12]bool{true, true, true, true, true, true, true, true, true, true, true, true} {
			t.Errorf("epoch %d: the ranks' parts %v overlap", epoch, seen)
		}
	}
}

// epochs records the epochs that it is given.
type epochs struct {
	Slice[int]
	told []int
}

func (e *epochs) SetEpoch(n int) { e.told = append(e.told, n) }

func TestDatasetsLearnTheEpoch(t *testing.T) {
	from := &epochs{Slice: numbers(3)}
	l := must(NewLoader(from, Samples, Options{}))
	prepare(t, l, PrepareOptions{})
	walk(t, l)
	walk(t, l)
	l.SetEpoch(7)
	walk(t, l)
	if fmt.Sprint(from.told) != "[0 1 7 7]" || l.Iteration() != 8 {
		t.Errorf("told %v, then iteration %d", from.told, l.Iteration())
	}
}

// events notes when loaders begin and end.
type events []string

func (e *events) BeginLoader(s LoaderState) { *e = append(*e, fmt.Sprint("begin ", s.Remainder())) }
func (e *events) EndLoader(s LoaderState)   { *e = append(*e, fmt.Sprint("end ", s.EndOfDataloader())) }

func TestObserversSeeLoopsThatEnd(t *testing.T) {
	var seen events
	l := must(NewLoader(numbers(5), Samples, Options{BatchSize: 2}))
	prepare(t, l, PrepareOptions{Observer: &seen})
	walk(t, l)
	for range l.All(t.Context()) {
		break
	}
	if fmt.Sprint(seen) != "[begin 1 end true begin 1]" {
		t.Errorf("seen %v", seen)
	}
}

func TestSkippingTwice(t *testing.T) {
	overData := SkipFirstBatches(SkipFirstBatches(must(NewLoader(numbers(6), Samples, Options{})), 2), 1)
	if w := walk(t, overData); len(w.batches) != 3 {
		t.Errorf("over a data set: %v", w.batches)
	}
	overStream := SkipFirstBatches(SkipFirstBatches(must(NewStreamLoader(Stream[int](numbers(6)), Samples, Options{})), 2), 1)
	if w := walk(t, overStream); len(w.batches) != 5 {
		t.Errorf("over a stream: %v", w.batches)
	}
	if n, err := overStream.Len(); n != 5 || err != nil {
		t.Errorf("length %d, %v", n, err)
	}
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"negative batch size": {BatchSize: -1},
		"two orders":          {Shuffle: true, Sampler: SequentialSampler(3)},
	} {
		if _, err := NewLoader(numbers(3), Samples, o); err == nil {
			t.Errorf("a data set took %s", name)
		}
		if _, err := NewStreamLoader(Stream[int](numbers(3)), Samples, o); err == nil {
			t.Errorf("a stream took %s", name)
		}
	}
	l := must(NewLoader(numbers(3), Samples, Options{}))
	if err := l.Prepare(PrepareOptions{Comm: rankOf{2, 2}}); err == nil {
		t.Error("rank 2 of 2")
	}
	prepare(t, l, PrepareOptions{})
	if err := l.Prepare(PrepareOptions{}); err == nil {
		t.Error("prepared twice")
	}
	if _, err := numbers(3).At(3); err == nil {
		t.Error("a sample beyond the end")
	}
}
