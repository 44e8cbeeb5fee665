package replicas

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// Shared is the strategy of ranks in one process that have one copy of the weights. Each
// trainable parameter has an owner: the rank that holds its averaged gradient and the optimizer's
// state and steps it. Weights have the bits of [Replicated], because gradients are added in order
// of rank and parameters are stepped whole.
type Shared struct {
	shards map[*tensor.Parameter]*Shard
	owners map[*tensor.Parameter]int
	loads  []int // elements that each rank owns
	pool   *tensor.GradPool
}

var _ Strategy = (*Shared)(nil)

// share makes all ranks use rank 0's trainable parameters of m, and determines their owners. It
// runs before weights are made equal.
func (s *Shared) share(ctx context.Context, g *Group, m *Module) error {
	if s.shards == nil {
		s.shards, s.owners = map[*tensor.Parameter]*Shard{}, map[*tensor.Parameter]int{}
		s.loads = make([]int, g.Comm.Size())
	}
	type offer struct {
		params []*tensor.Parameter
		pool   *tensor.GradPool
	}
	if s.pool == nil && g.Comm.Rank() == 0 {
		s.pool = new(tensor.GradPool)
	}
	all, err := collective.Exchange(ctx, g.Comm, offer{m.Params, s.pool})
	if err != nil {
		return err
	}
	s.pool = all[0].pool
	for i, p := range m.Params {
		from := all[0].params[i].Storage()
		if _, ok := from.(tensor.Memory); !p.Trainable {
			continue
		} else if !ok {
			err = errors.Join(err, fmt.Errorf("parameter %d is in a %T, want in memory: leave out ShareMemory", i, from))
		} else if g.Comm.Rank() > 0 {
			p.Move(from)
		}
		p.PoolGrad(s.pool)
	}
	s.own(g, m)
	return errors.Join(err, collective.Settle(g.Comm))
}

// Prepare does nothing: see share.
func (s *Shared) Prepare(*Group, *Module) error { return nil }

// own assigns each trainable parameter to the rank that owns least, the largest parameters first.
func (s *Shared) own(g *Group, m *Module) {
	var order []*tensor.Parameter
	for _, p := range m.Params {
		if p.Trainable {
			order = append(order, p)
		}
	}
	slices.SortStableFunc(order, func(a, b *tensor.Parameter) int { return b.Len() - a.Len() })
	for _, p := range order {
		owner := 0
		for r, n := range s.loads {
			if n < s.loads[owner] {
				owner = r
			}
		}
		s.loads[owner] += p.Len()
		n := 0
		if owner == g.Comm.Rank() {
			n = p.Len()
		}
		x := newShard(p, 0, n)
		x.whole = true
		x.mean.PoolGrad(s.pool)
		s.shards[p], s.owners[p] = x, owner
	}
}

// Reduce gives the owner of each parameter the mean of the ranks' gradients. Each rank computes a
// part of it in the owner's memory. The other ranks' gradients are dropped.
func (s *Shared) Reduce(ctx context.Context, g *Group, b *Bucket, some []int, shadow bool) error {
	if shadow {
		return g.Shares("join")
	}
	mine := make([][]float32, len(some))
	for k, i := range some {
		p := b.Params[i]
		if s.shards[p] == nil {
			return fmt.Errorf("a parameter of shape %v was frozen when it was prepared, and now trains: prepare it again", p.Shape())
		}
		if p.HasGrad() || s.owners[p] == g.Comm.Rank() {
			mine[k] = gradient(p)
		}
	}
	all, err := collective.Exchange(ctx, g.Comm, mine)
	if err != nil {
		return err
	}
	ranks := make([][]float32, len(all))
	for k, i := range some {
		for r := range all {
			ranks[r] = all[r][k]
		}
		lo, hi := collective.Part(b.Params[i].Len(), g.Comm.Rank(), g.Comm.Size())
		meanInto(ranks[s.owners[b.Params[i]]], ranks, lo, hi)
	}
	if err := collective.Settle(g.Comm); err != nil {
		return err
	}
	for _, i := range some {
		p := b.Params[i]
		x := s.shards[p]
		if s.owners[p] != g.Comm.Rank() {
			p.ZeroGrad()
		} else if x.mean.HasGrad() { // from an earlier pass
			if err := x.add(p.Grad()); err != nil {
				return err
			}
			p.ZeroGrad()
		} else {
			x.mean.SetGrad(p.TakeGrad())
		}
	}
	return nil
}

// meanInto computes elements lo to hi of the mean of the ranks' gradients into one rank's
// gradient. A rank without a gradient counts as zeros. Gradients are added in order of rank, as
// in an all-reduce.
func meanInto(dst []float32, ranks [][]float32, lo, hi int) {
	var sum [2048]float32
	for ; lo < hi; lo += len(sum) {
		part := sum[:min(len(sum), hi-lo)]
		if clear(part); ranks[0] != nil {
			copy(part, ranks[0][lo:])
		}
		for _, x := range ranks[1:] {
			if x == nil {
				for i := range part {
					part[i] += 0
				}
				continue
			}
			for i, v := range x[lo : lo+len(part)] {
				part[i] += v
			}
		}
		for i := range part {
			part[i] /= float32(len(ranks))
		}
		copy(dst[lo:], part)
	}
}

// Own returns all of p for its owner, and an empty part for other ranks.
func (s *Shared) Own(p *tensor.Parameter) *Shard { return s.shards[p] }

// Stepped waits until all ranks have stepped.
func (s *Shared) Stepped(ctx context.Context, g *Group) error {
	return collective.Barrier(ctx, g.Comm)
}

// NoSync returns nil.
func (s *Shared) NoSync() error { return nil }
