package data

import (
	"context"
	"errors"

	"github.com/heftai/heft/train/rng"
)

// Comm gives a loader access to its world: its rank, and a broadcast from rank 0, which dispatches
// batches and shares a generator.
type Comm interface {
	Rank() int
	Size() int
	// Broadcast returns root's b on every rank.
	Broadcast(ctx context.Context, root int, b []byte) ([]byte, error)
}

// Dispatch determines which ranks read.
type Dispatch int

const (
	// DispatchStreams lets rank 0 read streams and distribute them, and every rank read its own
	// part of a data set. It is the default, as in Accelerate.
	DispatchStreams Dispatch = iota
	// DispatchNever lets every rank read its own part.
	DispatchNever
	// DispatchAlways lets rank 0 read everything. Samples are sent with encoding/gob.
	DispatchAlways
)

// PrepareOptions configure how a loader is split between ranks. The zero value is a world of one
// with Accelerate's defaults.
type PrepareOptions struct {
	// Comm is this rank's connection to its world. nil means a world of one.
	Comm Comm
	// SplitBatches means that a batch is shared by all ranks, each of which gets a piece of it.
	// Otherwise every rank gets whole batches.
	SplitBatches bool
	// UnevenBatches (even_batches=False) does not complete the tail with repeated samples, so ranks
	// may get different numbers of batches.
	UnevenBatches bool
	Dispatch      Dispatch
	// UseSeedableSampler replaces a random order by one that depends only on DataSeed and the
	// epoch. Without it, rank 0's generator is copied to the other ranks before each epoch.
	UseSeedableSampler bool
	DataSeed           uint64
	// Observer is notified of the loader's epochs. It may be nil.
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

// reorder replaces a random order by a seedable one.
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

// ownGenerator returns the generator of the loader's random order. It creates one if there is none.
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

// synchronize copies the state of rank 0's generator to all ranks.
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
