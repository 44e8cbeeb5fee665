package rank

import (
	"fmt"

	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Unwrapped returns the optimizer inside a prepared one: a *sharded.Optimizer if it is split.
func Unwrapped(o optim.Optimizer) optim.Optimizer {
	if p, ok := o.(*optim.Prepared); ok {
		return p.Optimizer
	}
	return o
}

// ClipNorm limits the p-norm of the gradients of params, and returns the norm before clipping. If
// each rank has only a part of the gradients, all ranks must call it.
func (r *Rank) ClipNorm(params []optim.Param, limit, p float64) (float64, error) {
	if err := optim.CheckLimit(limit); err != nil {
		return 0, err
	}
	own, err := r.shards(params)
	if err != nil {
		return 0, err
	}
	if own == nil {
		return optim.ClipGradNorm(params, limit, p)
	}
	n, err := sharded.Norm(r.Context, r.Comm, own, p)
	if err == nil {
		sharded.Scale(own, limit, n)
	}
	return n, err
}

// Norm returns the p-norm of the gradients of params. If each rank has only a part of the
// gradients, all ranks must call it.
func (r *Rank) Norm(params []optim.Param, p float64) (float64, error) {
	own, err := r.shards(params)
	if err != nil {
		return 0, err
	}
	if own == nil {
		return optim.GradNorm(params, p)
	}
	return sharded.Norm(r.Context, r.Comm, own, p)
}

// ClipValue limits each element of the gradients of params to ±limit.
func (r *Rank) ClipValue(params []optim.Param, limit float64) error {
	own, err := r.shards(params)
	if err != nil {
		return err
	}
	if own == nil {
		own = params
	}
	return optim.ClipValue(own, limit)
}

// shards returns this rank's parts of params, or nil if it has the whole gradients.
func (r *Rank) shards(params []optim.Param) ([]optim.Param, error) {
	own := make([]optim.Param, len(params))
	split := 0
	for i, x := range params {
		own[i] = x
		if t, ok := x.(*tensor.Parameter); ok {
			if s := r.Group.Own(t); s != nil {
				own[i] = s
				split++
			}
		}
	}
	if split == 0 || r.Comm.Size() == 1 {
		return nil, nil
	}
	if split < len(params) {
		return nil, fmt.Errorf("train: clip: got %d parameters of %d that are not prepared, want all", len(params)-split, len(params))
	}
	return own, nil
}

// GatherState collects the states of split optimizers, for rank 0 to save. All ranks must call
// it.
func (r *Rank) GatherState() error {
	for i, o := range r.Optimizers {
		if s, ok := o.Optimizer.(*sharded.Optimizer); ok {
			if err := s.Gather(); err != nil {
				return fmt.Errorf("optimizer %d: %w", i+1, err)
			}
		}
	}
	return nil
}
