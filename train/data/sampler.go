package data

import (
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/heftai/heft/train/rng"
)

// Sampler orders the indices of a data set. Indices yields one epoch. A walk may be left early;
// every walk starts from the beginning.
type Sampler interface {
	Len() int
	Indices() iter.Seq[int]
}

// EpochSetter is a Sampler, BatchSampler, Dataset or Stream that gets the epoch before each walk.
type EpochSetter interface{ SetEpoch(epoch int) }

func setEpoch(x any, epoch int) {
	if s, ok := x.(EpochSetter); ok {
		s.SetEpoch(epoch)
	}
}

// SequentialSampler yields 0 … n-1.
type SequentialSampler int

// Len returns n, and 0 if n is negative.
func (n SequentialSampler) Len() int { return max(0, int(n)) }

// Indices yields 0 … n-1.
func (n SequentialSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range int(n) {
			if !yield(i) {
				return
			}
		}
	}
}

// RandomSampler is torch's RandomSampler. Each epoch has a new order.
type RandomSampler struct {
	// N is the size of the data set.
	N int
	// Samples is the number of indices of an epoch. 0 means N.
	Samples int
	// Replacement draws every index independently.
	Replacement bool
	// Generator draws the orders. If it is nil, each epoch uses a new generator seeded by Global,
	// which stands for torch's global generator.
	Generator *rng.Generator
	Global    *rng.Generator
}

// Len returns the number of indices of an epoch.
func (r *RandomSampler) Len() int {
	if r.Samples > 0 {
		return r.Samples
	}
	return max(0, r.N)
}

// Indices draws during the walk, so the generator advances with it.
func (r *RandomSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		g := r.Generator
		if g == nil && r.Global != nil {
			g = rng.New(uint64(r.Global.Int63()))
		}
		if g == nil {
			g = rng.New(0)
		}
		shuffled(g, r.N, r.Len(), r.Replacement, yield)
	}
}

// shuffled yields count indices below n and reports whether all were taken.
func shuffled(g *rng.Generator, n, count int, replacement bool, yield func(int) bool) bool {
	if n <= 0 {
		return true
	}
	if replacement { // in chunks of 32, as torch does
		for done := 0; done < count; done += 32 {
			var some [32]int
			part := some[:min(32, count-done)]
			for i := range part {
				part[i] = g.IntN(n)
			}
			if !each(part, yield) {
				return false
			}
		}
		return true
	}
	for range count / n {
		if !each(g.Perm(n), yield) {
			return false
		}
	}
	return each(g.Perm(n)[:count%n], yield) // drawn even if unused
}

func each(x []int, yield func(int) bool) bool {
	for _, v := range x {
		if !yield(v) {
			return false
		}
	}
	return true
}

// SeedableRandomSampler shuffles epoch e with the seed Seed+e: the same order on every rank and in every
// run. [NewSeedableRandomSampler] makes one.
type SeedableRandomSampler struct {
	n, samples  int
	replacement bool
	seed        uint64
	epoch       atomic.Int64 // a loader's goroutine may end an epoch during a call of Epoch
}

// NewSeedableRandomSampler shuffles n samples with seed (Accelerate's data_seed).
func NewSeedableRandomSampler(n int, seed uint64) *SeedableRandomSampler {
	return &SeedableRandomSampler{n: n, samples: n, seed: seed}
}

// Len returns the number of samples.
func (s *SeedableRandomSampler) Len() int { return max(0, s.samples) }

// Epoch returns the epoch of the next walk.
func (s *SeedableRandomSampler) Epoch() int { return int(s.epoch.Load()) }

// SetEpoch sets the epoch of the next walk.
func (s *SeedableRandomSampler) SetEpoch(epoch int) { s.epoch.Store(int64(epoch)) }

// Indices walks the epoch's order. Only a walk to its end advances the epoch.
func (s *SeedableRandomSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		epoch := s.epoch.Load()
		if shuffled(rng.New(s.seed+uint64(epoch)), s.n, s.Len(), s.replacement, yield) {
			s.epoch.Store(epoch + 1)
		}
	}
}

// RepeatSampler repeats the order of another sampler in chunks: each chunk of indices occurs
// several times before the next one. Indices that do not fill a chunk are omitted.
type RepeatSampler struct {
	of           Sampler
	chunk, times int
}

// NewRepeatSampler returns a sampler that yields each chunk of an order times times.
func NewRepeatSampler(of Sampler, chunk, times int) (*RepeatSampler, error) {
	if chunk < 1 || times < 1 {
		return nil, fmt.Errorf("data: got chunks of %d indices, %d times, want 1 or more of both", chunk, times)
	}
	return &RepeatSampler{of, chunk, times}, nil
}

// Len returns the number of indices of an epoch, including repetitions.
func (r *RepeatSampler) Len() int { return r.of.Len() / r.chunk * r.chunk * r.times }

// SetEpoch passes the epoch to the repeated sampler, if that is an [EpochSetter].
func (r *RepeatSampler) SetEpoch(epoch int) { setEpoch(r.of, epoch) }

// Indices walks the order to its end, so that the other sampler can count its epochs.
func (r *RepeatSampler) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		chunk := make([]int, 0, r.chunk)
		for i := range r.of.Indices() {
			if chunk = append(chunk, i); len(chunk) < r.chunk {
				continue
			}
			for range r.times {
				if !each(chunk, yield) {
					return
				}
			}
			chunk = chunk[:0]
		}
	}
}

// BatchSampler groups indices into batches. A walk may be left early. The caller may keep the
// slices.
type BatchSampler interface {
	// Len is the number of batches. It may be negative after a skip beyond the end.
	Len() int
	Batches() iter.Seq[[]int]
	// BatchSize is the size of a full batch, 0 if batches have no common size.
	BatchSize() int
	// DropLast reports whether a last batch that is not full is omitted.
	DropLast() bool
}

// FixedBatchSampler divides a sampler's order into batches of one size.
type FixedBatchSampler struct {
	sampler Sampler
	size    int
	drop    bool
}

// NewBatchSampler groups s into batches of size. With drop it omits a short last batch.
func NewBatchSampler(s Sampler, size int, drop bool) (*FixedBatchSampler, error) {
	if size < 1 {
		return nil, fmt.Errorf("data: got batch size %d, want 1 or more", size)
	}
	return &FixedBatchSampler{s, size, drop}, nil
}

// BatchSize returns the number of indices of a full batch.
func (g *FixedBatchSampler) BatchSize() int { return g.size }

// DropLast reports whether a short last batch is omitted.
func (g *FixedBatchSampler) DropLast() bool { return g.drop }

// SetEpoch passes the epoch to the sampler, if that is an [EpochSetter].
func (g *FixedBatchSampler) SetEpoch(epoch int) { setEpoch(g.sampler, epoch) }

// Len returns the number of batches of an epoch.
func (g *FixedBatchSampler) Len() int { return count(g.sampler.Len(), g.size, g.drop) }

// count returns the number of batches of the given size that n samples make.
func count(n, size int, drop bool) int {
	if drop {
		return n / size
	}
	return (n + size - 1) / size
}

// Batches walks one epoch. Each batch is a new slice.
func (g *FixedBatchSampler) Batches() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		batch := make([]int, 0, g.size)
		for i := range g.sampler.Indices() {
			if batch = append(batch, i); len(batch) == g.size {
				if !yield(batch) {
					return
				}
				batch = make([]int, 0, g.size)
			}
		}
		if len(batch) > 0 && !g.drop {
			yield(batch)
		}
	}
}

// skipped omits the first batches of another sampler. As in Accelerate it has no batch size, and
// therefore no remainder.
type skipped struct {
	of BatchSampler
	n  int
}

func (s skipped) Len() int           { return s.of.Len() - s.n }
func (s skipped) BatchSize() int     { return 0 }
func (s skipped) DropLast() bool     { return false }
func (s skipped) SetEpoch(epoch int) { setEpoch(s.of, epoch) }

func (s skipped) Batches() iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		n := 0
		for b := range s.of.Batches() {
			if n++; n > s.n && !yield(b) {
				return
			}
		}
	}
}
