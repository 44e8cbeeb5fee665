// Package rank is one rank's side of a training run. A [Rank] holds the rank's connection to the
// others, its prepared modules, optimizers, schedulers and loaders, the scaler, and its position
// in an accumulation window. It runs backward passes and decides when gradients are averaged.
//
// The package reads and writes no files and runs no loop: see runstate and trainer.
package rank

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/accumulation"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// Options configure a [Rank].
type Options struct {
	Comm collective.Comm
	// Context cancels the exchanges of Prepare.
	Context context.Context
	Rule    accumulation.Rule
	// Split determines how loaders are split between the ranks. New sets its Comm and its
	// Observer.
	Split data.PrepareOptions
	// Scaler scales losses and is passed to optimizers. It may be nil.
	Scaler *optim.Scaler
	// FreeSchedulers makes schedulers step on each call, not only with their optimizers.
	FreeSchedulers bool
	// CountAccumulation counts the calls of schedulers during accumulation.
	CountAccumulation bool
	// ShortWindows divides the losses of a window that its loader cut short by the actual number
	// of batches.
	ShortWindows bool
	// Strategy determines how ranks share the work. nil means replicas.Replicated.
	Strategy replicas.Strategy
	// Sharding splits optimizers between the ranks. nil does not split them.
	Sharding *sharded.Options
}

// Loader is a *data.Loader with any type of batch.
type Loader interface {
	Prepare(data.PrepareOptions) error
}

// Rank is the state of one rank. It must be used only by the rank's goroutine.
type Rank struct {
	Options
	Group      replicas.Group
	Optimizers []*optim.Prepared
	Schedulers []*optim.PreparedScheduler
	Loaders    []Loader
	Position   accumulation.State
	Generator  *rng.Generator

	window []tensor.Module // of the current Accumulate; none means all
}

// New returns a Rank that has prepared nothing.
func New(o Options) *Rank {
	r := &Rank{Options: o, Group: replicas.Group{Comm: o.Comm, Strategy: o.Strategy}, Generator: rng.New(0)}
	r.Position.Sync, r.Position.Ended = true, true
	r.Split.Comm, r.Split.Observer = o.Comm, &r.Position
	return r
}

// Free drops everything that was prepared and the gradients, and restarts the count of batches.
func (r *Rank) Free() {
	for _, m := range r.Group.Modules {
		for _, p := range m.Params {
			p.ZeroGrad()
		}
	}
	r.Group.Modules, r.Optimizers, r.Schedulers, r.Loaders = nil, nil, nil, nil
	r.Position = accumulation.State{Sync: true}
}

// Syncs reports whether the current batch ends its window.
func (r *Rank) Syncs() bool { return r.Position.Sync }

// IsMain reports whether this is rank 0.
func (r *Rank) IsMain() bool { return r.Comm.Rank() == 0 }

// OnMain runs f on rank 0.
func (r *Rank) OnMain(f func() error) error {
	if !r.IsMain() {
		return nil
	}
	return f()
}

// Together returns an error on all ranks if any rank has one: the rank's own error, or else
// another rank's. All ranks must call it.
func (r *Rank) Together(ctx context.Context, err error) error {
	if r.Comm.Size() == 1 {
		return err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, failed := collective.AllGather(ctx, r.Comm, text)
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	for rank, text := range all {
		if text != "" {
			return fmt.Errorf("rank %d: %s", rank, text)
		}
	}
	return nil
}

// SameFolder returns an error on all ranks if some rank has a different directory from rank 0.
// All ranks must call it.
func (r *Rank) SameFolder(ctx context.Context, dir string) error {
	if r.Comm.Size() == 1 {
		return nil
	}
	all, err := collective.AllGather(ctx, r.Comm, dir)
	if err != nil {
		return err
	}
	for rank, other := range all {
		if other != all[0] {
			return fmt.Errorf("got folder %q on rank %d and %q on rank 0, want the same on all ranks", other, rank, all[0])
		}
	}
	return nil
}

// Wait returns when all ranks have called it.
func (r *Rank) Wait(ctx context.Context) error { return collective.Barrier(ctx, r.Comm) }
