package tensortest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/heftai/heft/meta"
)

// Shard is a storage of which each rank keeps a part. Its first Acquire waits for that of all
// other ranks and copies all parts. Release stores the rank's own part and poisons the copy.
type Shard struct {
	// Acquired counts the calls of Acquire that waited for the other ranks.
	Acquired int

	all     *shards
	first   int       // index of own[0] in the whole
	own     []float32 // the rank's part
	full    []float32 // all parts, while they are acquired
	readers int
	writing bool
}

// shards is the state that the ranks of a parameter share.
type shards struct {
	ctx    context.Context
	mu     sync.Mutex
	length int
	ranks  []*Shard
	round  *round
}

// round is one exchange: the last rank to arrive completes it.
type round struct {
	arrived int
	full    []float32
	done    chan struct{}
}

// NewShards splits values between n ranks. If n does not divide their number, the first ranks get
// one element more. Waiting ends with ctx.
func NewShards(ctx context.Context, values []float32, n int) []*Shard {
	all := &shards{ctx: ctx, length: len(values), round: &round{done: make(chan struct{})}}
	first := 0
	for r := range n {
		size := len(values) / n
		if r < len(values)%n {
			size++
		}
		all.ranks = append(all.ranks, &Shard{all: all, first: first, own: slices.Clone(values[first : first+size])})
		first += size
	}
	return all.ranks
}

// Ranks returns the number of ranks that acquire together.
func (s *Shard) Ranks() int { return len(s.all.ranks) }

// Len returns the number of elements of all ranks.
func (s *Shard) Len() int { return s.all.length }

// DType returns float32.
func (s *Shard) DType() meta.DType { return meta.Float32 }

// Resident returns all elements while they are acquired, else those of the rank.
func (s *Shard) Resident() (int, []float32) {
	if s.full != nil {
		return 0, s.full
	}
	return s.first, s.own
}

// Acquire waits for all ranks, unless the rank has acquired already.
func (s *Shard) Acquire(write bool) ([]float32, error) {
	if s.writing || write && s.readers > 0 {
		return nil, errors.New("tensortest: acquire for writing: the shard is in use")
	}
	if s.readers == 0 {
		full, err := s.all.exchange()
		if err != nil {
			return nil, err
		}
		s.full = full
		s.Acquired++
	}
	s.readers++
	s.writing = write
	return s.full, nil
}

// exchange returns a copy of all parts once all ranks have called it.
func (a *shards) exchange() ([]float32, error) {
	a.mu.Lock()
	r := a.round
	if r.arrived++; r.arrived == len(a.ranks) {
		for _, s := range a.ranks {
			r.full = append(r.full, s.own...)
		}
		a.round = &round{done: make(chan struct{})}
		close(r.done)
	}
	a.mu.Unlock()
	select {
	case <-r.done:
		return slices.Clone(r.full), nil
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
}

// Release keeps the rank's part after a write, and poisons the copy after the last release.
func (s *Shard) Release(write bool) error {
	if s.readers == 0 || write != s.writing {
		return errors.New("tensortest: release without a matching acquire")
	}
	if write {
		s.all.mu.Lock()
		copy(s.own, s.full[s.first:])
		s.all.mu.Unlock()
	}
	s.writing = false
	if s.readers--; s.readers == 0 {
		for i := range s.full {
			s.full[i] = float32(math.NaN())
		}
		s.full = nil
	}
	return nil
}

// InUse reports whether the values are acquired.
func (s *Shard) InUse() bool { return s.readers > 0 }
