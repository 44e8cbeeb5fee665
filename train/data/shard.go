package data

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Shard determines which part of the batches a rank gets.
type Shard struct {
	Rank, Size int
	// SplitBatches cuts every batch into Size pieces instead of distributing whole batches. The
	// batch size must be a multiple of Size.
	SplitBatches bool
	// UnevenBatches leaves the tail incomplete instead of completing it with samples from the
	// start. Ranks may then get different numbers of batches and samples.
	UnevenBatches bool
}

func (s Shard) check() error {
	if s.Size < 1 || s.Rank < 0 || s.Rank >= s.Size {
		return fmt.Errorf("data: shard: got rank %d of %d", s.Rank, s.Size)
	}
	return nil
}

func errSplit(size, ranks int) error {
	if size == 0 {
		return errors.New("data: split_batches needs a batch sampler whose batches have a common size")
	}
	return fmt.Errorf("data: to split batches, the batch size (%d) needs to be a round multiple of the number of processes (%d)", size, ranks)
}

// BatchShard is one rank's part of a batch sampler.
//
// Batch i goes to rank i % Size. A round of Size batches is yielded only once its last one is full.
// The tail is completed by cycling through the samples of the first Size batches (with
// SplitBatches: of the first batch), so that all ranks get equally many batches of equal size.
// Batches without a common size are completed by whole batches.
type BatchShard struct {
	of BatchSampler
	by Shard
}

// NewBatchShard splits of between ranks. SplitBatches requires batches of a common size.
func NewBatchShard(of BatchSampler, by Shard) (*BatchShard, error) {
	if err := by.check(); err != nil {
		return nil, err
	}
	if size := of.BatchSize(); by.SplitBatches && (size == 0 || size%by.Size != 0) {
		return nil, errSplit(size, by.Size)
	}
	return &BatchShard{of, by}, nil
}

// BatchSize returns the size before sharding.
func (s *BatchShard) BatchSize() int { return s.of.BatchSize() }

// DropLast reports whether the underlying batch sampler omits a short last batch.
func (s *BatchShard) DropLast() bool { return s.of.DropLast() }

// SetEpoch passes the epoch to the batch sampler, if that is an [EpochSetter].
func (s *BatchShard) SetEpoch(epoch int) { setEpoch(s.of, epoch) }

// Len returns the number of batches of this rank, padding included. The package comment explains
// SplitBatches.
func (s *BatchShard) Len() int {
	n, size := s.of.Len(), s.by.Size
	switch {
	case s.by.SplitBatches:
		return n
	case n%size == 0 || s.of.DropLast():
		return n / size
	case !s.by.UnevenBatches || s.by.Rank < n%size:
		return n/size + 1
	}
	return n / size
}

// Batches walks this rank's batches of one epoch. The walk reads the whole batch sampler.
func (s *BatchShard) Batches() iter.Seq[[]int] {
	if s.by.SplitBatches {
		return s.split
	}
	if s.of.BatchSize() == 0 {
		return s.dealRagged
	}
	return s.deal
}

// piece returns this rank's part of a batch, if there is one.
func (s *BatchShard) piece(batch []int) []int {
	n := s.of.BatchSize() / s.by.Size
	lo := min(n*s.by.Rank, len(batch))
	return slices.Clip(batch[lo:min(lo+n, len(batch))])
}

func (s *BatchShard) split(yield func([]int) bool) {
	size := s.of.BatchSize()
	var first, last []int
	for batch := range s.of.Batches() {
		if first == nil {
			first = slices.Clone(batch)
		}
		if last = batch; len(batch) == size && !yield(s.piece(batch)) {
			return
		}
	}
	if s.of.DropLast() || len(last) == 0 || len(last) == size {
		return
	}
	if !s.by.UnevenBatches {
		last = cycle(slices.Clip(last), first, size)
	}
	if p := s.piece(last); len(p) > 0 {
		yield(p)
	}
}

// cycle appends samples from the start of from to batch, cyclically, up to size.
func cycle(batch, from []int, size int) []int {
	for i := 0; len(batch) < size; i++ {
		batch = append(batch, from[i%len(from)])
	}
	return batch
}

// deal distributes whole batches of a common size.
func (s *BatchShard) deal(yield func([]int) bool) {
	size, ranks := s.of.BatchSize(), s.by.Size
	var start, mine, last []int
	n := 0
	for batch := range s.of.Batches() {
		if !s.of.DropLast() && n < ranks {
			start = append(start, batch...)
		}
		if n%ranks == s.by.Rank {
			mine = batch
		}
		if n++; n%ranks == 0 && len(batch) == size {
			if !yield(mine) {
				return
			}
			mine = nil
		}
		last = batch
	}
	if s.of.DropLast() || len(start) == 0 {
		return
	}
	if s.by.UnevenBatches {
		if len(mine) > 0 {
			yield(mine)
		}
		return
	}
	if len(mine) == size && !yield(mine) {
		return
	}
	s.fill(yield, start, last, n)
}

// fill completes the round that batch n-1 (last) has left incomplete.
func (s *BatchShard) fill(yield func([]int) bool, start, last []int, n int) {
	size, ranks := s.of.BatchSize(), s.by.Size
	n-- // the round continues with the last batch, unless that was full and has been yielded
	if len(last) == size {
		last = nil
		n++
	}
	used := 0
	for n%ranks != 0 || len(last) > 0 {
		batch := slices.Clip(last)
		for len(batch) < size {
			batch = append(batch, start[used%len(start)])
			used++
		}
		if n%ranks == s.by.Rank && !yield(batch) {
			return
		}
		last = nil
		n++
	}
}

// dealRagged distributes batches without a common size.
func (s *BatchShard) dealRagged(yield func([]int) bool) {
	ranks := s.by.Size
	var start [][]int
	var mine []int
	n := 0
	for batch := range s.of.Batches() {
		if n < ranks {
			start = append(start, batch)
		}
		if n%ranks == s.by.Rank {
			mine = batch
		}
		if n++; n%ranks == 0 {
			if !yield(mine) {
				return
			}
			mine = nil
		}
	}
	if s.of.DropLast() || len(start) == 0 {
		return
	}
	if len(mine) > 0 && !yield(mine) || s.by.UnevenBatches {
		return
	}
	for used := 0; n%ranks != 0; n, used = n+1, used+1 {
		if n%ranks == s.by.Rank && !yield(start[used%len(start)]) {
			return
		}
	}
}

// Stream is data that can only be read in order. Samples walks it from its start; an
// error ends the walk.
type Stream[T any] interface {
	Samples() iter.Seq2[T, error]
}

// Sized is a Stream that knows its length.
type Sized interface{ Len() int }

// StreamShard is one rank's part of a stream. Every rank reads the whole stream and keeps its slice
// of each global batch. A short last batch is completed from the first one, unless DropLast is set.
type StreamShard[T any] struct {
	of   Stream[T]
	size int
	drop bool
	by   Shard
}

// NewStreamShard shards of by batches of size: each rank's own size, or with SplitBatches the size
// for all ranks together. UnevenBatches has no effect.
func NewStreamShard[T any](of Stream[T], size int, dropLast bool, by Shard) (*StreamShard[T], error) {
	if err := by.check(); err != nil {
		return nil, err
	}
	if size < 1 {
		return nil, fmt.Errorf("data: got batch size %d, want 1 or more", size)
	}
	if by.SplitBatches && size > 1 && size%by.Size != 0 {
		return nil, errSplit(size, by.Size)
	}
	return &StreamShard[T]{of, size, dropLast, by}, nil
}

// Length returns Accelerate's count of this rank's samples. It ignores SplitBatches. It returns
// false if the stream has no length.
func (s *StreamShard[T]) Length() (int, bool) {
	sized, ok := s.of.(Sized)
	if !ok {
		return 0, false
	}
	return count(sized.Len(), s.size*s.by.Size, s.drop) * s.size, true
}

// SetEpoch passes the epoch to the stream, if that is an [EpochSetter].
func (s *StreamShard[T]) SetEpoch(epoch int) { setEpoch(s.of, epoch) }

// Samples walks this rank's samples of one epoch. An error of the stream ends the walk.
func (s *StreamShard[T]) Samples() iter.Seq2[T, error] {
	whole, part := s.size*s.by.Size, s.size
	if s.by.SplitBatches {
		whole, part = s.size, s.size/s.by.Size
	}
	lo, hi := s.by.Rank*part, (s.by.Rank+1)*part
	return func(yield func(T, error) bool) {
		var first []T
		batch := make([]T, 0, whole)
		give := func() bool {
			for _, x := range batch[lo:hi] {
				if !yield(x, nil) {
					return false
				}
			}
			return true
		}
		for x, err := range s.of.Samples() {
			if err != nil {
				yield(x, err)
				return
			}
			if batch = append(batch, x); len(batch) < whole {
				continue
			}
			if first == nil {
				first = slices.Clone(batch)
			}
			if !give() {
				return
			}
			batch = batch[:0]
		}
		if s.drop || len(batch) == 0 {
			return
		}
		if first == nil {
			first = slices.Clone(batch)
		}
		for i := 0; len(batch) < whole; i++ {
			batch = append(batch, first[i%len(first)])
		}
		give()
	}
}
