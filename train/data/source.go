package data

import (
	"context"
	"fmt"
	"iter"
)

// source provides a loader's batches. It hides the type of samples.
type source[B any] interface {
	// jobs yields a function for each batch, which reads and collates it.
	jobs() iter.Seq2[func() (B, error), error]
	length() (int, bool)     // in batches; negative after a skip beyond the end
	dataLength() (int, bool) // in samples
	totalBatch() int
	setEpoch(epoch int)
	streams() bool
	batchSampler() BatchSampler // nil for streams
	skip(n int) source[B]
	prepare(by Shard, o *PrepareOptions) (source[B], error)
	dispatch(context.Context, dispatchRule, func(b B, last bool, samples int) bool) (bool, error)
}

type mapSource[T, B any] struct {
	from    Dataset[T]
	batches BatchSampler
	collate Collate[T, B]
	shard   Shard // zero if not sharded
}

func (s *mapSource[T, B]) streams() bool              { return false }
func (s *mapSource[T, B]) batchSampler() BatchSampler { return s.batches }
func (s *mapSource[T, B]) length() (int, bool)        { return s.batches.Len(), true }
func (s *mapSource[T, B]) dataLength() (int, bool)    { return s.from.Len(), true }

func (s *mapSource[T, B]) setEpoch(epoch int) {
	setEpoch(s.batches, epoch)
	setEpoch(s.from, epoch)
}

func (s *mapSource[T, B]) totalBatch() int {
	n := s.batches.BatchSize()
	if s.shard.Size > 1 && !s.shard.SplitBatches {
		n *= s.shard.Size
	}
	return n
}

func (s *mapSource[T, B]) read(indices []int) ([]T, error) {
	samples := make([]T, len(indices))
	for i, index := range indices {
		x, err := s.from.At(index)
		if err != nil {
			return nil, fmt.Errorf("data: sample %d: %w", index, err)
		}
		samples[i] = x
	}
	return samples, nil
}

func (s *mapSource[T, B]) jobs() iter.Seq2[func() (B, error), error] {
	return func(yield func(func() (B, error), error) bool) {
		for indices := range s.batches.Batches() {
			job := func() (B, error) {
				samples, err := s.read(indices)
				if err != nil {
					var zero B
					return zero, err
				}
				return s.collate(samples)
			}
			if !yield(job, nil) {
				return
			}
		}
	}
}

func (s *mapSource[T, B]) skip(n int) source[B] {
	c := *s
	c.batches = skipped{s.batches, n}
	return &c
}

func (s *mapSource[T, B]) prepare(by Shard, o *PrepareOptions) (source[B], error) {
	c := *s
	c.batches = o.reorder(c.batches)
	if n := c.batches.BatchSize(); by.SplitBatches && (n == 0 || n%by.Size != 0) {
		return nil, errSplit(n, by.Size)
	}
	if by.Size == 1 || o.dispatches(false) {
		return &c, nil
	}
	shard, err := NewBatchShard(c.batches, by)
	if err != nil {
		return nil, err
	}
	c.batches, c.shard = shard, by
	return &c, nil
}

func (s *mapSource[T, B]) dispatch(ctx context.Context, rule dispatchRule, give func(B, bool, int) bool) (bool, error) {
	batches := func(yield func([]T, error) bool) {
		for indices := range s.batches.Batches() {
			if samples, err := s.read(indices); !yield(samples, err) || err != nil {
				return
			}
		}
	}
	return dispatch(ctx, rule, batches, s.collate, give)
}

type streamSource[T, B any] struct {
	from    Stream[T]
	size    int
	drop    bool
	collate Collate[T, B]
}

func (s *streamSource[T, B]) streams() bool              { return true }
func (s *streamSource[T, B]) batchSampler() BatchSampler { return nil }
func (s *streamSource[T, B]) setEpoch(epoch int)         { setEpoch(s.from, epoch) }
func (s *streamSource[T, B]) totalBatch() int            { return s.size }

func (s *streamSource[T, B]) skip(int) source[B] { return s }

func (s *streamSource[T, B]) dataLength() (int, bool) {
	switch from := s.from.(type) {
	case interface{ Length() (int, bool) }:
		return from.Length()
	case Sized:
		return from.Len(), true
	}
	return 0, false
}

func (s *streamSource[T, B]) length() (int, bool) {
	n, ok := s.dataLength()
	return count(n, s.size, s.drop), ok
}

// groups divides the stream into batches of samples.
func (s *streamSource[T, B]) groups(yield func([]T, error) bool) {
	batch := make([]T, 0, s.size)
	for x, err := range s.from.Samples() {
		if err != nil {
			yield(nil, fmt.Errorf("data: stream: %w", err))
			return
		}
		if batch = append(batch, x); len(batch) == s.size {
			if !yield(batch, nil) {
				return
			}
			batch = make([]T, 0, s.size)
		}
	}
	if len(batch) > 0 && !s.drop {
		yield(batch, nil)
	}
}

func (s *streamSource[T, B]) jobs() iter.Seq2[func() (B, error), error] {
	return func(yield func(func() (B, error), error) bool) {
		for samples, err := range s.groups {
			if !yield(func() (B, error) { return s.collate(samples) }, err) {
				return
			}
		}
	}
}

func (s *streamSource[T, B]) prepare(by Shard, o *PrepareOptions) (source[B], error) {
	if by.SplitBatches && s.size%by.Size != 0 {
		return nil, errSplit(s.size, by.Size)
	}
	if by.Size == 1 || o.dispatches(true) {
		return s, nil
	}
	shard, err := NewStreamShard(s.from, s.size, s.drop, by)
	if err != nil {
		return nil, err
	}
	c := *s
	c.from = shard
	if by.SplitBatches {
		c.size /= by.Size
	}
	return &c, nil
}

func (s *streamSource[T, B]) dispatch(ctx context.Context, rule dispatchRule, give func(B, bool, int) bool) (bool, error) {
	return dispatch(ctx, rule, s.groups, s.collate, give)
}
