package data

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/heftai/heft/train/rng"
)

// Dataset has samples by index. With Options.Workers, At is called from several goroutines.
type Dataset[T any] interface {
	Len() int
	At(i int) (T, error)
}

// Slice is a Dataset in memory.
type Slice[T any] []T

// Len returns the number of samples.
func (s Slice[T]) Len() int { return len(s) }

// At returns sample i. An index out of range is an error.
func (s Slice[T]) At(i int) (T, error) {
	if i < 0 || i >= len(s) {
		var zero T
		return zero, fmt.Errorf("data: got sample %d, want 0 to %d", i, len(s)-1)
	}
	return s[i], nil
}

// Samples makes a Slice a Stream as well.
func (s Slice[T]) Samples() iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, x := range s {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// Collate makes a batch of samples. With Options.Workers it is called from several goroutines. A
// dispatching loader calls it with no samples if none are left for a rank.
type Collate[T, B any] func(samples []T) (B, error)

// Samples is the Collate that returns the samples themselves.
func Samples[T any](samples []T) ([]T, error) { return samples, nil }

// Options configure a loader. The zero value yields samples one by one, in order.
type Options struct {
	// BatchSize is the number of samples in a batch. 0 means 1.
	BatchSize int
	// DropLast leaves out a last batch that is not full.
	DropLast bool
	// Shuffle orders the samples randomly, with numbers from Generator or, if that is nil, Global.
	Shuffle bool
	// Sampler orders the samples, instead of Shuffle.
	Sampler Sampler
	// BatchSampler makes the batches, instead of all of the above.
	BatchSampler BatchSampler
	// Generator is the loader's own source of randomness.
	Generator *rng.Generator
	// Global stands for torch's global generator. As in torch, each epoch draws a number from
	// Generator, or from Global if that is nil, whether shuffled or not.
	Global *rng.Generator
	// Workers is the number of goroutines that read and collate batches. Batches stay in order. 0
	// reads in the caller's goroutine.
	Workers int
	// Prefetch is the maximum number of batches that workers read ahead of the caller. 0 means two
	// per worker.
	Prefetch int
}

// ErrNoLength is returned by Len of a loader over a stream without a length.
var ErrNoLength = errors.New("data: the stream has no length")

// ErrNegativeLength is returned by Len if more batches were skipped than there are.
var ErrNegativeLength = errors.New("data: more batches are skipped than there are")

// ErrNothingToDispatch ends the walk of a dispatching loader that has no complete batch.
var ErrNothingToDispatch = errors.New("data: the dispatching rank has no batch to hand out")

// LoaderState is an [Observer]'s view of a loader.
type LoaderState interface {
	// EndOfDataloader is true while the last batch is in use, and after it.
	EndOfDataloader() bool
	// Remainder is the number of samples of the last global batch that are not padding: 0 if the
	// batch is full, -1 if it is unknown.
	Remainder() int
}

// Observer is notified when a prepared loader begins and ends an epoch. A loop that is left early
// does not end the epoch.
type Observer interface {
	BeginLoader(LoaderState)
	EndLoader(LoaderState)
}

type mode int

const (
	plain mode = iota
	sharded
	dispatched
)

// Loader yields batches of type B, epoch after epoch, as torch's DataLoader does. [NewLoader] and
// [NewStreamLoader] make one. After [Loader.Prepare] it behaves as Accelerate's DataLoaderShard, or as
// its DataLoaderDispatcher if [Loader.Dispatches]. One goroutine walks a loader at a time, and calls its
// methods, which report on the current walk. Loaders that share a sampler or a generator share this
// goroutine too. A loader needs no Close: nothing runs between walks.
type Loader[B any] struct {
	src  source[B]
	opts Options
	mode mode
	prep PrepareOptions
	sync *rng.Generator // the sampler's, made equal on all ranks before each epoch

	drop      bool      // whether the remainder is unknown because of DropLast
	skip      int       // batches to skip in each walk
	skipped   int       // batches omitted by SkipFirstBatches, here or in the source
	progress  *progress // never nil
	iteration int
	end       bool
	remainder int
}

// NewLoader makes a loader over a data set, for one process. It reads no sample. With o.BatchSampler it
// ignores BatchSize, DropLast, Shuffle and Sampler. It fails if BatchSize is negative, or if there are
// both a Sampler and Shuffle.
func NewLoader[T, B any](from Dataset[T], collate Collate[T, B], o Options) (*Loader[B], error) {
	if o.BatchSize == 0 {
		o.BatchSize = 1
	}
	drop := o.DropLast
	batches := o.BatchSampler
	if batches == nil {
		s := o.Sampler
		switch {
		case s != nil && o.Shuffle:
			return nil, errors.New("data: options: got both a sampler and shuffle, want one of them")
		case s == nil && o.Shuffle:
			s = &RandomSampler{N: from.Len(), Generator: o.Generator, Global: o.Global}
		case s == nil:
			s = SequentialSampler(from.Len())
		}
		g, err := NewBatchSampler(s, o.BatchSize, o.DropLast)
		if err != nil {
			return nil, err
		}
		batches = g
	} else {
		drop = false
	}
	src := &mapSource[T, B]{from: from, batches: batches, collate: collate}
	return &Loader[B]{src: src, opts: o, drop: drop, progress: new(progress), remainder: -1}, nil
}

// NewStreamLoader makes a loader over a stream, for one process. It reads no sample. Every walk begins
// the stream anew. It fails if BatchSize is negative, or if o orders samples (Shuffle, Sampler,
// BatchSampler): a stream has its own order.
func NewStreamLoader[T, B any](from Stream[T], collate Collate[T, B], o Options) (*Loader[B], error) {
	if o.BatchSize == 0 {
		o.BatchSize = 1
	}
	switch {
	case o.BatchSize < 1:
		return nil, fmt.Errorf("data: got batch size %d, want 1 or more", o.BatchSize)
	case o.Shuffle || o.Sampler != nil || o.BatchSampler != nil:
		return nil, errors.New("data: options: a stream has its own order, want no sampler and no shuffle")
	}
	src := &streamSource[T, B]{from: from, size: o.BatchSize, drop: o.DropLast, collate: collate}
	return &Loader[B]{src: src, opts: o, drop: o.DropLast, progress: new(progress), remainder: -1}, nil
}

// EndOfDataloader reports whether a prepared loader has yielded its last batch: it is true while that
// batch is in use, and until the next walk begins. It is false for a loader that is not prepared.
// Accelerate's end_of_dataloader.
func (l *Loader[B]) EndOfDataloader() bool { return l.end }

// Remainder returns how many samples of the last batch of all ranks together are not padding: the
// length of the data set modulo [Loader.TotalBatchSize], so 0 if that batch is full. It is -1 if that is
// not known: without a length, with DropLast, after [SkipFirstBatches] over a data set, or before Prepare.
// For a dispatching loader it is the number of samples of the last batch, from that batch on.
// Accelerate's remainder.
func (l *Loader[B]) Remainder() int { return l.remainder }

// Dispatches reports whether rank 0 reads and distributes the batches.
func (l *Loader[B]) Dispatches() bool { return l.mode == dispatched }

// Streams reports whether samples come from a [Stream], in an order of its own.
func (l *Loader[B]) Streams() bool { return l.src.streams() }

// Iteration returns the number of complete walks of a prepared loader, which is the epoch of the next
// walk. A walk that was left early does not count. [Loader.SetEpoch] changes it.
func (l *Loader[B]) Iteration() int { return l.iteration }

// SetEpoch sets the epoch of the next walk, from 0. Samplers, data sets and streams that are an
// [EpochSetter] get it at once, and those of a prepared loader again when each walk begins. Call it
// between walks.
func (l *Loader[B]) SetEpoch(epoch int) {
	l.iteration = epoch
	l.src.setEpoch(epoch)
}

// Len returns the number of batches of a walk on this rank. Those that [SkipFirstBatches] leaves out do
// not count, except over a prepared stream. It fails with [ErrNoLength] for a stream without a length,
// and with [ErrNegativeLength] if more batches are skipped than there are. The package comment says where
// it differs from what a walk yields.
func (l *Loader[B]) Len() (int, error) {
	n, ok := l.src.length()
	switch {
	case !ok:
		return 0, ErrNoLength
	case n < 0:
		return 0, ErrNegativeLength
	case l.mode == dispatched && !l.prep.SplitBatches:
		n = count(n, l.prep.size(), l.drop)
	case l.mode == plain && l.src.streams():
		if n -= l.skip; n < 0 {
			return 0, ErrNegativeLength
		}
	}
	return n, nil
}

// DatasetLen returns the number of samples of the data set or stream, for all ranks and with those that
// are skipped. For a sharded stream it is the length of this rank's part, padding included. It fails
// with [ErrNoLength] for a stream without a length.
func (l *Loader[B]) DatasetLen() (int, error) {
	if n, ok := l.src.dataLength(); ok {
		return n, nil
	}
	return 0, ErrNoLength
}

// TotalBatchSize returns the number of samples of a full batch over all ranks: one rank's batch size
// times the ranks, or with SplitBatches the batch size. It is 0 if that is unknown, as for a dispatching
// loader or a [BatchSampler] of varying sizes. For a sharded stream it is one rank's number, as in
// Accelerate (total_batch_size).
func (l *Loader[B]) TotalBatchSize() int {
	if l.mode == dispatched {
		return 0
	}
	return l.src.totalBatch()
}

// All yields the batches of one epoch on this rank, or the rest of one after [Loader.Restore]. Each call
// of the iterator is another walk. A batch is what Collate returned, and belongs to the caller. Ranks walk
// together where they exchange something: the generator of a random order before each walk, and the
// samples of each batch with dispatching. An error ends the walk: that of a sample, with its index, of
// Collate or of an exchange, [ErrNothingToDispatch], or ctx's own, which is checked between batches. With
// Options.Workers goroutines read ahead. They have ended when the walk ends or is left.
func (l *Loader[B]) All(ctx context.Context) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		var zero B
		err := l.enter()
		if err == nil {
			err = l.synchronize(ctx)
		}
		if err != nil {
			yield(zero, err)
			return
		}
		if l.mode != plain {
			l.begin()
		}
		if g := l.opts.Generator; g != nil {
			g.Int63()
		} else if g := l.opts.Global; g != nil {
			g.Int63()
		}
		give := func(b B, err error) bool {
			if drawn := l.drawn(); err == nil {
				err = drawn
			}
			if err == nil {
				l.progress.yielded++
			}
			return yield(b, err)
		}
		switch l.mode {
		case plain:
			l.walkPlain(ctx, give)
		case sharded:
			l.walkSharded(ctx, give)
		case dispatched:
			l.walkDispatched(ctx, give)
		}
		if err := l.drawn(); err != nil && l.progress.started == nil { // no batch remained
			yield(zero, err)
		}
	}
}

func (l *Loader[B]) begin() {
	l.end, l.remainder = false, -1
	if total := l.TotalBatchSize(); !l.drop && total > 0 {
		if n, ok := l.src.dataLength(); ok {
			l.remainder = n % total
		}
	}
	if o := l.prep.Observer; o != nil {
		o.BeginLoader(l)
	}
	l.src.setEpoch(l.iteration)
}

func (l *Loader[B]) finish() {
	l.leave()
	if o := l.prep.Observer; o != nil {
		o.EndLoader(l)
	}
}

func (l *Loader[B]) walkPlain(ctx context.Context, yield func(B, error) bool) {
	src, skip := l.resumed(l.passOver())
	skip += l.skip
	n := 0
	for b, err := range l.batches(ctx, src) {
		if n++; err == nil && n <= skip {
			continue
		}
		if !yield(b, err) || err != nil {
			return
		}
	}
	l.leave()
}

// walkSharded reads one batch ahead of the caller, so that it knows which batch is the last.
func (l *Loader[B]) walkSharded(ctx context.Context, yield func(B, error) bool) {
	passed := l.passOver()
	src, skip := l.resumed(passed)
	skip += l.skip
	var ahead B
	n := 0 // batches read
	for b, err := range l.batches(ctx, src) {
		if err != nil {
			yield(b, err)
			return
		}
		if n > skip && !yield(ahead, nil) {
			return
		}
		ahead = b
		n++
	}
	l.end = l.end || n > 0
	if n > skip && !yield(ahead, nil) {
		return
	}
	if n > 0 || passed > 0 {
		l.iteration++
	}
	l.finish()
}

func (l *Loader[B]) walkDispatched(ctx context.Context, yield func(B, error) bool) {
	rule := dispatchRule{comm: l.prep.comm(), split: l.prep.SplitBatches, drop: l.drop}
	skip := l.passOver() + l.skip
	n := 0
	goesOn, err := l.src.dispatch(ctx, rule, func(b B, last bool, samples int) bool {
		if last {
			l.end, l.remainder = true, samples
		}
		n++
		return n <= skip || yield(b, nil)
	})
	if err != nil {
		var zero B
		yield(zero, err)
		return
	}
	if goesOn {
		l.iteration++
		l.finish()
	}
}

// SkipFirstBatches returns l without the first n batches of each walk, to resume in the middle of
// an epoch. A negative n is 0. It shares l's samplers, generators and [Loader.Position], so walk only one
// of the two at a time, and starts with l's epoch. Over a data set skipped batches are not read; over a
// stream they are read and dropped. The package comment lists its limits. Accelerate's
// skip_first_batches.
func SkipFirstBatches[B any](l *Loader[B], n int) *Loader[B] {
	s := *l
	s.end, s.remainder = false, -1
	if s.mode == sharded {
		s.drop = false
	}
	if s.src.streams() {
		s.skip = max(0, n)
		s.skipped = s.skip
	} else {
		s.src = l.src.skip(max(0, n))
		s.skipped += max(0, n)
	}
	return &s
}
