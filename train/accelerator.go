package train

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/accumulation"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// Module has parameters under names, in an order that does not change. A bare *tensor.Parameter is
// a Module. The dynamic type must be comparable; use a pointer.
type Module = tensor.Module

// Preparable is an argument of [Accelerator.Prepare]: a [Module]; a *data.Loader of any batch; the
// address of a variable of type optim.Optimizer or optim.Scheduler, which then holds the prepared
// one; or an *optim.Prepared.
type Preparable any

var errPrepared = errors.New("is prepared already")

// DataLoader is a *data.Loader of any batch.
type DataLoader interface {
	Prepare(data.PrepareOptions) error
}

// Accelerator runs one rank's part of a training loop. It belongs to the goroutine of
// its rank.
type Accelerator struct {
	cfg        Config
	accum      GradientAccumulation
	comm       collective.Comm
	precision  tensor.Precision
	state      accumulation.State
	group      *replicas.Group
	trigger    bool
	generator  *rng.Generator
	base       *slog.Logger
	logger     *slog.Logger
	optimizers []*optim.Prepared
	trackers   []track.Tracker // of the main process
	schedulers []*optim.PreparedScheduler
	loaders    []DataLoader

	project              ProjectConfiguration
	custom               []Stateful
	saveHooks, loadHooks []StateHook
	beforeChange         func(change string) error // of tests, see aside
}

// New makes the accelerator of one rank. It fails if accumulation is configured twice or the mixed
// precision is unknown.
func New(c Config) (*Accelerator, error) {
	accum, err := c.accumulation()
	if err != nil {
		return nil, err
	}
	precision, err := c.mixedPrecision()
	if err != nil {
		return nil, err
	}
	a := &Accelerator{cfg: c, accum: accum, comm: c.World.transport(), group: &replicas.Group{Comm: c.World.transport()}, generator: rng.New(0), base: c.Logger, project: c.Project, precision: precision}
	if err := a.prepareScaler(); err != nil {
		return nil, err
	}
	if a.project.ProjectDir == "" {
		a.project.ProjectDir = c.ProjectDir
	}
	a.state.Sync, a.state.Ended = true, true
	if a.base == nil {
		a.base = slog.Default()
	}
	a.logger = a.rankLogger(true)
	return a, nil
}

// Device returns the device of this rank: "cpu".
func (a *Accelerator) Device() string { return "cpu" }

// Prepare adapts modules, loaders, optimizers and schedulers to the world, in place. With several
// ranks, modules get rank 0's trainable weights; all ranks must prepare the same modules in the
// same order. A scheduler follows the optimizers that were prepared before it or in the same call.
// Prepare fails on any other argument, and on one that is prepared already.
func (a *Accelerator) Prepare(things ...Preparable) error {
	for _, schedulers := range []bool{false, true} {
		for i, x := range things {
			if _, is := x.(*optim.Scheduler); is != schedulers {
				continue
			}
			if err := a.prepare(x); err != nil {
				return fmt.Errorf("train: prepare: argument %d, a %T: %w", i+1, x, err)
			}
		}
	}
	return nil
}

func (a *Accelerator) prepare(x Preparable) error {
	if v := reflect.ValueOf(x); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("is nil")
	}
	switch x := x.(type) {
	case DataLoader:
		return a.PrepareDataLoader(x)
	case Module:
		return a.prepareModule(x)
	case *optim.Prepared:
		return a.adoptOptimizer(x)
	case *optim.Optimizer:
		return a.prepareOptimizer(x)
	case *optim.Scheduler:
		return a.prepareScheduler(x)
	case optim.Optimizer, optim.Scheduler:
		return errors.New("give the address of the variable that holds it")
	}
	return errors.New("cannot be prepared")
}

// PrepareDataLoader splits a loader between the ranks as [DataLoaderConfig] says, in place. The
// accelerator then knows when the loader is at its last batch.
func (a *Accelerator) PrepareDataLoader(l DataLoader) error {
	return a.deal(l, a.dealing())
}

// dealing returns the options of [DataLoaderConfig].
func (a *Accelerator) dealing() data.PrepareOptions {
	c := a.cfg.DataLoader
	dispatch := data.DispatchStreams
	if c.DispatchBatches != nil {
		dispatch = data.DispatchNever
		if *c.DispatchBatches {
			dispatch = data.DispatchAlways
		}
	}
	return data.PrepareOptions{
		Comm:               a.comm,
		SplitBatches:       c.SplitBatches,
		UnevenBatches:      !on(c.EvenBatches),
		Dispatch:           dispatch,
		UseSeedableSampler: c.UseSeedableSampler,
		DataSeed:           c.DataSeed,
		Observer:           &a.state,
	}
}

func (a *Accelerator) deal(l DataLoader, o data.PrepareOptions) error {
	err := l.Prepare(o)
	if err == nil {
		a.loaders = append(a.loaders, l)
	}
	return err
}

func (a *Accelerator) prepareModule(m Module) error {
	if !reflect.TypeOf(m).Comparable() {
		return errors.New("has no identity: give a pointer")
	}
	if a.group.Find(m) != nil {
		return errPrepared
	}
	p, err := replicas.NewModule(m)
	if err != nil {
		return err
	}
	if a.comm.Size() > 1 {
		if err := a.group.Equal(a.cfg.World.context(), p); err != nil {
			return err
		}
	}
	a.group.Modules = append(a.group.Modules, p)
	return nil
}

// UnwrapModel returns m: preparing does not wrap modules.
func (a *Accelerator) UnwrapModel(m Module) Module { return m }

// FreeMemory forgets everything that was prepared, drops the gradients, and restarts the count of
// batches.
func (a *Accelerator) FreeMemory() {
	for _, p := range a.group.Modules {
		for _, param := range p.Params {
			param.ZeroGrad()
		}
	}
	a.group.Modules, a.optimizers, a.schedulers, a.loaders = nil, nil, nil, nil
	a.state = accumulation.State{Sync: true}
}

// Clear is [Accelerator.FreeMemory] under Accelerate's other name.
func (a *Accelerator) Clear() { a.FreeMemory() }

// Generator is the counterpart of torch's global generator. Loaders that draw from it
// (data.Options.Global) follow [Accelerator.SetSeed].
func (a *Accelerator) Generator() *rng.Generator { return a.generator }

// SetSeed restarts Generator with seed; with deviceSpecific each rank adds its number to it.
func (a *Accelerator) SetSeed(seed uint64, deviceSpecific bool) {
	if deviceSpecific {
		seed += uint64(a.comm.Rank())
	}
	a.generator.Seed(seed)
}

// SkipFirstBatches returns a prepared loader without the first n batches of each walk, to resume in
// the middle of an epoch. Package data documents its limits.
func SkipFirstBatches[B any](l *data.Loader[B], n int) *data.Loader[B] {
	return data.SkipFirstBatches(l, n)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
