package data

import (
	"context"
	"errors"

	"github.com/heftai/heft/train/rng"
)

// Comm is a loader's view of its world: its rank, and a broadcast from rank 0 to dispatch batches
// and to share a generator.
type Comm interface {
	Rank() int
	Size() int
	// Broadcast returns root's b on every rank.
	Broadcast(ctx context.Context, root int, b []byte) ([]byte, error)
}

// Dispatch says which ranks read.
type Dispatch int

const (
	// DispatchStreams lets rank 0 read streams and hand them out, and every rank read
	// its own part of a data set. The default, as in Accelerate.
	DispatchStreams Dispatch = iota
	// DispatchNever lets every rank read its own part.
	DispatchNever
	// DispatchAlways lets rank 0 read. Samples travel by encoding/gob.
	DispatchAlways
)

// PrepareOptions say how to split a loader between ranks. The zero value is a world of one with
// Accelerate's defaults.
type PrepareOptions struct {
	// Comm is this rank's end of its world; nil is a world of one.
	Comm Comm
	// SplitBatches means that a batch is that of all ranks together, which each get a
	// piece of; else every rank gets whole batches.
	SplitBatches bool
	// UnevenBatches (even_batches=False) does not complete the tail with repeated
	// samples, so that ranks may get different numbers of batches.
	UnevenBatches bool
	Dispatch      Dispatch
	// UseSeedableSampler replaces a random order by one that depends on DataSeed and
	// the epoch only. Without it, rank 0's generator is copied to the others before each
	// epoch.
	UseSeedableSampler bool
	DataSeed           uint64
	// Observer hears of the loader's epochs; may be nil.
	Observer Observer
}

func (o *PrepareOptions) comm() Comm {
	if o.Comm == nil {
		return alone{}
	}
	return o.Comm
}

func (o *PrepareOptions) size() int { return o.comm().Size() }

func (o *PrepareOptions) dispatches(streams bool) bool {
	return o.Dispatch == DispatchAlways || o.Dispatch == DispatchStreams && streams
}

// reorder puts a seedable order in place of a random one.
func (o *PrepareOptions) reorder(b BatchSampler) BatchSampler {
	g, ok := b.(*FixedBatchSampler)
	if !ok || !o.UseSeedableSampler {
		return b
	}
	r, ok := g.sampler.(*RandomSampler)
	if !ok {
		return b
	}
	return &FixedBatchSampler{&SeedableRandomSampler{n: r.N, samples: r.Len(), replacement: r.Replacement, seed: o.DataSeed}, g.size, g.drop}
}

// alone is the world of one rank.
type alone struct{}

func (alone) Rank() int                                                    { return 0 }
func (alone) Size() int                                                    { return 1 }
func (alone) Broadcast(_ context.Context, _ int, b []byte) ([]byte, error) { return b, nil }

// Prepare splits l between the ranks of a world, in place, as Accelerate's prepare_data_loader does. Every
// rank prepares its own loader with the same options. Prepare exchanges nothing: walks do. It fails if
// SplitBatches is set and the batch size is unknown or not a multiple of the ranks, if Comm's rank is not
// within its size, or if l is prepared already.
func (l *Loader[B]) Prepare(o PrepareOptions) error {
	if l.mode != plain {
		return errors.New("data: the loader is prepared already")
	}
	comm := o.comm()
	by := Shard{Rank: comm.Rank(), Size: comm.Size(), SplitBatches: o.SplitBatches, UnevenBatches: o.UnevenBatches}
	if err := by.check(); err != nil {
		return err
	}
	random := l.ownGenerator(&o)
	src, err := l.src.prepare(by, &o)
	if err != nil {
		return err
	}
	l.src, l.prep, l.mode = src, o, sharded
	if o.dispatches(src.streams()) {
		l.mode = dispatched
	} else if by.Size > 1 {
		l.sync = random
	}
	return nil
}

// ownGenerator returns the generator of the loader's random order, made if it has none.
func (l *Loader[B]) ownGenerator(o *PrepareOptions) *rng.Generator {
	g, ok := l.src.batchSampler().(*FixedBatchSampler)
	if !ok || o.UseSeedableSampler || o.size() == 1 {
		return nil
	}
	r, ok := g.sampler.(*RandomSampler)
	if !ok {
		return nil
	}
	if r.Generator == nil {
		var seed uint64
		if r.Global != nil {
			seed = uint64(r.Global.Int63())
		}
		r.Generator = rng.New(seed)
	}
	return r.Generator
}

// synchronize copies rank 0's generator to all.
func (l *Loader[B]) synchronize(ctx context.Context) error {
	if l.sync == nil {
		return nil
	}
	b, err := l.sync.MarshalBinary()
	if err != nil {
		return err
	}
	if b, err = l.prep.comm().Broadcast(ctx, 0, b); err != nil {
		return err
	}
	return l.sync.UnmarshalBinary(b)
}
