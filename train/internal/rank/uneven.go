package rank

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/tensor"
)

// Join runs f, in which ranks may have different numbers of batches. A rank that has finished
// takes part in the others' averaging with zeros. At the end it takes the weights of a rank that
// had the most batches.
func (r *Rank) Join(ctx context.Context, f func(context.Context) error) error {
	if r.Comm.Size() == 1 {
		return f(ctx)
	}
	g := &r.Group
	if err := g.Shares("join"); err != nil {
		return err
	}
	if g.Joining {
		return errors.New("train: joins do not nest")
	}
	g.Joining = true
	defer func() { g.Joining = false }()
	if err := f(ctx); err != nil {
		return err
	}
	last := true
	for {
		active, err := g.AnyActive(ctx, false)
		if err != nil {
			return err
		}
		if !active {
			return g.Adopt(ctx, last)
		}
		last = false
		if err := g.Shadow(ctx); err != nil {
			return err
		}
	}
}

// LocalSGD trains m on every rank separately. It averages the weights over the ranks after each
// steps calls of step, and at the end.
func (r *Rank) LocalSGD(ctx context.Context, m tensor.Module, steps int, f func(step func() error) error) error {
	if r.Comm.Size() == 1 {
		return f(func() error { return nil })
	}
	if steps < 1 {
		return fmt.Errorf("train: local SGD: got an interval of %d steps, want 1 or more", steps)
	}
	if r.Group.Find(m) == nil {
		return fmt.Errorf("train: local SGD: a module of type %T was not prepared", m)
	}
	if err := r.Group.Shares("local SGD"); err != nil {
		return err
	}
	taken := 0
	return r.WithSync([]tensor.Module{m}, false, func() error {
		err := f(func() error {
			if taken++; taken%steps == 0 {
				return r.averageWeights(ctx, m)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return r.averageWeights(ctx, m)
	})
}

// averageWeights replaces the trainable weights of m by their mean over the ranks.
func (r *Rank) averageWeights(ctx context.Context, m tensor.Module) error {
	for _, p := range r.Group.Find(m).Params {
		if !p.Trainable {
			continue
		}
		err := p.Access(true, func(values []float32) error {
			return collective.AllReduce(ctx, r.Comm, collective.Mean, values)
		})
		if err != nil {
			return fmt.Errorf("train: local SGD: %w", err)
		}
	}
	return nil
}
