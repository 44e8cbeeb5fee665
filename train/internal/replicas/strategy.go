package replicas

import (
	"context"
	"fmt"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// A Strategy determines how ranks share the work of training: what happens to the gradients of a
// bucket, and which part of a parameter a rank steps. Each rank has its own Strategy.
type Strategy interface {
	// Prepare lays out a module whose weights are equal on all ranks.
	Prepare(g *Group, m *Module) error
	// Reduce averages the gradients of b's parameters with the indices in some, which are the same
	// on all ranks. A shadow takes part with zeros and keeps no gradient.
	Reduce(ctx context.Context, g *Group, b *Bucket, some []int, shadow bool) error
	// Own returns the part of p that this rank steps, or nil if it steps all of p.
	Own(p *tensor.Parameter) *Shard
	// Stepped makes the weights equal after ranks have stepped their parts.
	Stepped(ctx context.Context, g *Group) error
	// NoSync returns an error if the strategy does not support passes whose gradients are not
	// averaged.
	NoSync() error
}

// Replicated is the strategy of torch's DistributedDataParallel: each rank holds everything.
type Replicated struct{}

var _ Strategy = Replicated{}

func (Replicated) Prepare(*Group, *Module) error         { return nil }
func (Replicated) Own(*tensor.Parameter) *Shard          { return nil }
func (Replicated) Stepped(context.Context, *Group) error { return nil }
func (Replicated) NoSync() error                         { return nil }

// Reduce averages the gradients on all ranks. A single gradient is averaged in place.
func (Replicated) Reduce(ctx context.Context, g *Group, b *Bucket, some []int, shadow bool) error {
	if len(some) == 1 && !shadow {
		return collective.AllReduce(ctx, g.Comm, collective.Mean, gradient(b.Params[some[0]]))
	}
	n := 0
	for _, i := range some {
		n += b.Params[i].Len()
	}
	flat := g.buffer(n)
	n = 0
	for _, i := range some {
		filled, err := fill(flat[n:], b.Params[i], shadow)
		if err != nil {
			return err
		}
		n += filled
	}
	if err := collective.AllReduce(ctx, g.Comm, collective.Mean, flat); err != nil || shadow {
		return err
	}
	n = 0
	for _, i := range some {
		n += copy(gradient(b.Params[i]), flat[n:])
	}
	return nil
}

// fill copies p's gradient, or zeros, and returns its length.
func fill(flat []float32, p *tensor.Parameter, zeros bool) (int, error) {
	if p.HasGrad() && !zeros {
		return p.Len(), p.AccessGrad(false, func(g []float32) error { copy(flat, g); return nil })
	}
	clear(flat[:p.Len()])
	return p.Len(), nil
}

func gradient(p *tensor.Parameter) []float32 {
	if p.Grad() == nil {
		p.SetGrad(p.NewGrad())
	}
	return p.Grad()
}

// Sharded is the strategy of ZeRO: a rank holds all weights, and a part of the averaged gradients
// and of the optimizer's state. Parts follow the buckets.
type Sharded struct {
	// Free drops the gradients of a pass once their bucket is averaged, as in ZeRO's stage 2.
	// Passes whose gradients are not averaged are then not supported. Otherwise, as in stage 1,
	// the memory of gradients is reused.
	Free bool

	shards map[*tensor.Parameter]*Shard
}

var _ Strategy = (*Sharded)(nil)

// Prepare splits the trainable parameters of m.
func (s *Sharded) Prepare(g *Group, m *Module) error {
	if s.shards == nil {
		s.shards = map[*tensor.Parameter]*Shard{}
	}
	for _, b := range m.buckets {
		lo, hi := collective.Part(b.Len, g.Comm.Rank(), g.Comm.Size())
		for i, p := range b.Params {
			if p.Trainable {
				first, last := b.Bounds(i, lo, hi)
				s.shards[p] = newShard(p, first, last)
			}
		}
	}
	return nil
}

// Reduce computes the mean of this rank's part, and adds it to the shards' gradients.
func (s *Sharded) Reduce(ctx context.Context, g *Group, b *Bucket, some []int, shadow bool) error {
	flat := g.buffer(b.Len)
	clear(flat)
	for _, i := range some {
		if s.shards[b.Params[i]] == nil {
			return fmt.Errorf("a parameter of shape %v was frozen when it was prepared, and now trains: prepare it again", b.Params[i].Shape())
		}
		if _, err := fill(flat[b.At[i]:], b.Params[i], shadow); err != nil {
			return err
		}
	}
	if _, err := collective.ReduceScatter(ctx, g.Comm, collective.Mean, flat); err != nil || shadow {
		return err
	}
	for _, i := range some {
		p := b.Params[i]
		x := s.shards[p]
		if err := x.add(flat[b.At[i]+x.Lo : b.At[i]+x.Hi]); err != nil {
			return err
		}
		if s.Free {
			p.TakeGrad()
		}
		p.ZeroGrad()
	}
	return nil
}

// Own returns the shard of p.
func (s *Sharded) Own(p *tensor.Parameter) *Shard { return s.shards[p] }

// Stepped copies each rank's part of the weights to all ranks.
func (s *Sharded) Stepped(ctx context.Context, g *Group) error {
	if g.Comm.Size() == 1 {
		return nil
	}
	for _, m := range g.Modules {
		for _, b := range m.buckets {
			if b.Len == 0 {
				continue
			}
			if err := s.spread(ctx, g, b); err != nil {
				return fmt.Errorf("train: weights: %w", err)
			}
		}
	}
	return nil
}

func (s *Sharded) spread(ctx context.Context, g *Group, b *Bucket) error {
	flat := g.buffer(b.Len)
	for i, p := range b.Params {
		x := s.shards[p]
		if x == nil {
			continue
		}
		err := p.Access(false, func(values []float32) error {
			copy(flat[b.At[i]+x.Lo:], values[x.Lo:x.Hi])
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := collective.AllGatherParts(ctx, g.Comm, flat); err != nil {
		return err
	}
	for i, p := range b.Params {
		if s.shards[p] == nil {
			continue
		}
		err := p.Access(true, func(values []float32) error {
			copy(values, flat[b.At[i]:])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// NoSync returns an error in stage 2.
func (s *Sharded) NoSync() error {
	if s.Free {
		return ErrNoSync
	}
	return nil
}

// ErrNoSync means that a strategy does not support passes whose gradients stay on their rank.
var ErrNoSync = fmt.Errorf("train: this plugin averages the gradients of each backward pass, so NoSync is not supported: use TorchDDPPlugin or LowLevelZeroPlugin with Stage 1, or accumulate averaged gradients")
