package rank

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

var errPrepared = errors.New("is prepared already")

// Prepare adapts things to the run, in place: modules, loaders, and optimizers and schedulers, of
// which it takes the addresses of their variables. Optimizers are prepared after modules, and
// schedulers last, so that they follow the optimizers of the same call. An error names the
// argument.
func (r *Rank) Prepare(things ...any) error {
	for phase := range 3 {
		for i, x := range things {
			if phaseOf(x) != phase {
				continue
			}
			if err := r.prepare(x); err != nil {
				return fmt.Errorf("train: prepare: argument %d, a %T: %w", i+1, x, errtext.Below("train", err))
			}
		}
	}
	return nil
}

// phaseOf returns the phase in which x is prepared. Optimizers may need the layout of the
// modules.
func phaseOf(x any) int {
	switch x.(type) {
	case *optim.Prepared, *optim.Optimizer:
		return 1
	case *optim.Scheduler:
		return 2
	}
	return 0
}

func (r *Rank) prepare(x any) error {
	if v := reflect.ValueOf(x); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("is nil")
	}
	switch x := x.(type) {
	case Loader:
		return r.PrepareLoader(x, r.Split)
	case tensor.Module:
		return r.prepareModule(x)
	case *optim.Prepared:
		return r.adoptOptimizer(x)
	case *optim.Optimizer:
		return r.prepareOptimizer(x)
	case *optim.Scheduler:
		return r.prepareScheduler(x)
	case optim.Optimizer, optim.Scheduler:
		return errors.New("give the address of the variable that holds it")
	}
	return errors.New("cannot be prepared")
}

// PrepareLoader splits l between the ranks as o says.
func (r *Rank) PrepareLoader(l Loader, o data.PrepareOptions) error {
	if l == nil {
		return errors.New("train: prepare: the loader is nil")
	}
	err := l.Prepare(o)
	if err == nil {
		r.Loaders = append(r.Loaders, l)
	}
	return err
}

// prepareModule copies rank 0's trainable weights to m.
func (r *Rank) prepareModule(m tensor.Module) error {
	if !reflect.TypeOf(m).Comparable() {
		return errors.New("has no identity: give a pointer")
	}
	if r.Group.Find(m) != nil {
		return errPrepared
	}
	p, err := replicas.NewModule(m)
	if err != nil {
		return err
	}
	if r.Comm.Size() > 1 {
		if err := r.Group.Equal(r.Context, p); err != nil {
			return err
		}
	}
	return r.Group.Add(p)
}

// prepareOptimizer wraps the optimizer in *o.
func (r *Rank) prepareOptimizer(o *optim.Optimizer) error {
	if *o == nil {
		return errors.New("the optimizer is nil")
	}
	p, ok := (*o).(*optim.Prepared)
	if !ok {
		p = &optim.Prepared{Optimizer: *o}
		*o = p
	}
	return r.adoptOptimizer(p)
}

// keeper is a strategy that determines where optimizers store their state.
type keeper interface {
	Keep(*sharded.Optimizer) error
}

func (r *Rank) adoptOptimizer(p *optim.Prepared) error {
	if p.Syncs != nil {
		return errPrepared
	}
	if !slices.ContainsFunc(p.Groups(), func(g *optim.Group) bool { return len(g.Params) > 0 }) {
		return errors.New("the optimizer has no parameters: give it those of the model, as train.Params returns them")
	}
	if r.Sharding != nil {
		s, err := sharded.New(r.Context, &r.Group, p.Optimizer, *r.Sharding)
		if err != nil {
			return err
		}
		if k, ok := r.Strategy.(keeper); ok {
			if err := k.Keep(s); err != nil {
				return err
			}
		}
		p.Optimizer = s
	}
	p.Syncs = r.Syncs
	p.Scaler = r.Scaler
	p.Peers = func() []*optim.Prepared { return r.Optimizers }
	r.Optimizers = append(r.Optimizers, p)
	return nil
}

// prepareScheduler wraps the scheduler in *s.
func (r *Rank) prepareScheduler(s *optim.Scheduler) error {
	if *s == nil {
		return errors.New("the scheduler is nil")
	}
	if _, ok := (*s).(*optim.PreparedScheduler); ok {
		return errPrepared
	}
	p := &optim.PreparedScheduler{
		Scheduler:    *s,
		Optimizers:   r.Optimizers,
		World:        r.Comm.Size(),
		SplitBatches: r.Split.SplitBatches,
		Free:         r.FreeSchedulers,
		Adjust:       r.CountAccumulation,
		Syncs:        r.Syncs,
	}
	*s = p
	r.Schedulers = append(r.Schedulers, p)
	return nil
}
