package train

import (
	"log/slog"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/accumulation"
	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/internal/runstate"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// Module has named parameters, in an order that does not change. A bare *tensor.Parameter is a
// Module. The dynamic type must be comparable; use a pointer.
type Module = tensor.Module

// Preparable is an argument of [Accelerator.Prepare]: a [Module]; a *data.Loader of any batch; the
// address of a variable of type optim.Optimizer or optim.Scheduler, which then holds the prepared
// one; or an *optim.Prepared.
type Preparable any

// DataLoader is a *data.Loader of any batch.
type DataLoader interface {
	Prepare(data.PrepareOptions) error
}

// Accelerator runs one rank's part of a training loop. It must be used only by the goroutine of its
// rank.
type Accelerator struct {
	cfg       Config
	rank      *rank.Rank
	store     *runstate.Store
	precision tensor.Precision
	project   ProjectConfiguration
	trigger   bool
	walk      error // the error that ended a loop over BatchesOf
	base      *slog.Logger
	logger    *slog.Logger
	trackers  []track.Tracker // on the main process only
}

// New makes the accelerator of one rank. It fails if accumulation or the folder is configured twice, a number is
// negative, or the mixed precision is unknown.
func New(c Config) (*Accelerator, error) {
	accum, err := c.accumulation()
	if err != nil {
		return nil, err
	}
	precision, err := c.mixedPrecision()
	if err != nil {
		return nil, err
	}
	project, err := c.projectConfiguration()
	if err != nil {
		return nil, err
	}
	a := &Accelerator{cfg: c, precision: precision, project: project, base: c.Logger}
	if err := a.prepareScaler(); err != nil {
		return nil, err
	}
	if a.base == nil {
		a.base = slog.Default()
	}
	how, err := c.sharing()
	if err != nil {
		return nil, err
	}
	a.rank = rank.New(rank.Options{
		Strategy:          how.strategy,
		Sharding:          how.options,
		Comm:              c.World.transport(),
		Context:           c.World.context(),
		Rule:              accumulation.Rule{Steps: accum.Steps, WithLoader: on(accum.SyncWithDataloader), EachBatch: accum.SyncEachBatch},
		Split:             c.DataLoader.split(),
		Scaler:            a.cfg.Scaler,
		FreeSchedulers:    !on(c.StepSchedulerWithOptimizer),
		CountAccumulation: c.Corrections.AdjustScheduler && on(accum.AdjustScheduler),
		ShortWindows:      c.Corrections.ShortWindow,
	})
	a.logger = a.rankLogger(true)
	a.store = &runstate.Store{
		Rank:             a.rank,
		Naming:           a.project.naming(),
		SkipFrozen:       a.project.SkipFrozen,
		RestoreLoaders:   c.DataLoader.UseStatefulDataLoader,
		SplitBatches:     c.DataLoader.SplitBatches,
		PendingGradients: c.Corrections.PendingGradients,
		Warn:             a.logger.Warn,
	}
	return a, nil
}

// Device returns the device of this rank: "cpu".
func (a *Accelerator) Device() string { return "cpu" }

// Prepare adapts modules, loaders, optimizers and schedulers to the world, in place. With several
// ranks, modules get rank 0's trainable weights and buffers. All ranks must prepare the same
// modules in the same order. A scheduler follows the optimizers that were prepared before it or in
// the same call. Prepare returns an error for any other argument, and for one that is prepared
// already.
func (a *Accelerator) Prepare(things ...Preparable) error {
	all := make([]any, len(things))
	for i, x := range things {
		all[i] = x
	}
	return a.rank.Prepare(all...)
}

// PrepareDataLoader splits a loader between the ranks as [DataLoaderConfig] says, in place. The
// accelerator then knows when the loader is at its last batch.
func (a *Accelerator) PrepareDataLoader(l DataLoader) error {
	return a.rank.PrepareLoader(l, a.rank.Split)
}

// UnwrapModel returns m: preparing does not wrap modules.
func (a *Accelerator) UnwrapModel(m Module) Module { return m }

// FreeMemory forgets everything that was prepared, drops the gradients, and restarts the count of
// batches.
func (a *Accelerator) FreeMemory() { a.rank.Free() }

// Clear is [Accelerator.FreeMemory] under Accelerate's other name.
func (a *Accelerator) Clear() { a.FreeMemory() }

// Generator returns the counterpart of torch's global generator. Loaders that draw from it
// (data.Options.Global) follow [Accelerator.SetSeed].
func (a *Accelerator) Generator() *rng.Generator { return a.rank.Generator }

// SetSeed restarts Generator with seed. If deviceSpecific is set, each rank adds its number to the
// seed.
func (a *Accelerator) SetSeed(seed uint64, deviceSpecific bool) {
	if deviceSpecific {
		seed += uint64(a.rank.Comm.Rank())
	}
	a.rank.Generator.Seed(seed)
}

// SkipFirstBatches returns a prepared loader without the first n batches of each walk, to resume in
// the middle of an epoch. Package data documents its limits.
func SkipFirstBatches[B any](l *data.Loader[B], n int) *data.Loader[B] {
	return data.SkipFirstBatches(l, n)
}
