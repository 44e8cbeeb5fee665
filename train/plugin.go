package train

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/replicas"
	"github.com/heftai/heft/train/internal/sharded"
)

// Plugin determines how the ranks of a [World] share the work of training: a [TorchDDPPlugin], a
// [LowLevelZeroPlugin] or a [GeminiPlugin]. With the same batches all three give the same weights.
// Use one with a [Booster], or as [Config].Plugin of an [Accelerator]. A Plugin belongs to one
// rank.
type Plugin interface {
	// PrepareDataLoader splits a loader between the ranks, in place. Batches go to the ranks in turn.
	PrepareDataLoader(l DataLoader) error
	// SupportNoSync reports whether [Booster.NoSync] works.
	SupportNoSync() bool

	world() *World
	sharing() (sharing, error)
}

// sharing is the result of setting up a plugin.
type sharing struct {
	strategy replicas.Strategy // nil means replicated
	options  *sharded.Options  // nil means that optimizers are not split
	fresh    bool              // each backward pass replaces the previous gradients
}

// checkNil returns an error if p is a nil pointer, whose methods would panic.
func checkNil(p Plugin) error {
	if v := reflect.ValueOf(p); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("train: the plugin is a nil %T", p)
	}
	return nil
}

func (c *Config) sharing() (sharing, error) {
	if c.Plugin == nil {
		return sharing{}, nil
	}
	if err := checkNil(c.Plugin); err != nil {
		return sharing{}, err
	}
	if w := c.Plugin.world(); w != nil && w != c.World {
		return sharing{}, errors.New("train: the plugin has another World than the configuration")
	}
	return c.Plugin.sharing()
}

// ErrNoSync is returned by plugins that average the gradients of each backward pass.
var ErrNoSync = replicas.ErrNoSync

// TorchDDPPlugin keeps the whole model, its gradients and the optimizer's state on every rank, and
// averages gradients, as torch's DistributedDataParallel does.
type TorchDDPPlugin struct {
	// World is this rank's place. Nil is a world of one rank.
	World *World
	// ShareMemory makes ranks of one process, as started by [Launch], share one copy of the
	// trainable weights, of the averaged gradients and of the optimizer's state. n ranks then use
	// the memory of one, plus that of gradients that accumulate on each rank. Weights are bitwise
	// the same as without it. After a backward pass that averages, a parameter has its gradient on
	// one rank only, so clip with the [Accelerator]. The optimizer must be one of package optim.
	// Weights may change only in its steps. Join and LocalSGD do not work. Ranks in different
	// processes ignore ShareMemory.
	ShareMemory bool
}

var _ Plugin = (*TorchDDPPlugin)(nil)

// PrepareDataLoader splits l between the ranks, in place.
func (p *TorchDDPPlugin) PrepareDataLoader(l DataLoader) error { return splitLoader(p.World, l) }

// SupportNoSync returns true.
func (p *TorchDDPPlugin) SupportNoSync() bool { return true }

func (p *TorchDDPPlugin) world() *World { return p.World }

func (p *TorchDDPPlugin) sharing() (sharing, error) {
	if c := p.World.transport(); !p.ShareMemory || c.Size() == 1 || !collective.Together(c) {
		return sharing{}, nil
	}
	return sharing{strategy: &replicas.Shared{}, options: &sharded.Options{}}, nil
}

// LowLevelZeroPlugin splits averaged gradients and the optimizer's state between the ranks, as ZeRO
// does. Each rank has the whole model, steps its part of the weights, and gets the other parts from
// the other ranks. The optimizer must be one of package optim.
type LowLevelZeroPlugin struct {
	// World is this rank's place. Nil is a world of one rank.
	World *World
	// Stage is 1 (also for 0) or 2. Stage 1 keeps the gradients of a rank between passes, so that
	// [Booster.NoSync] works. Stage 2 averages the gradients of each pass and then drops them.
	Stage int
	// MaxNorm limits the norm of all gradients before a step. 0 means no limit.
	MaxNorm float64
	// CPUOffload has no effect, as in Colossal-AI without a GPU: the optimizer's state is always in the
	// host's memory. [GeminiPlugin] moves it to the disk.
	CPUOffload bool
}

var _ Plugin = (*LowLevelZeroPlugin)(nil)

// PrepareDataLoader splits l between the ranks, in place.
func (p *LowLevelZeroPlugin) PrepareDataLoader(l DataLoader) error { return splitLoader(p.World, l) }

// SupportNoSync reports whether the stage is 1.
func (p *LowLevelZeroPlugin) SupportNoSync() bool { return p.Stage < 2 }

func (p *LowLevelZeroPlugin) world() *World { return p.World }

func (p *LowLevelZeroPlugin) sharing() (sharing, error) {
	if p.Stage < 0 || p.Stage > 2 {
		return sharing{}, fmt.Errorf("train: LowLevelZeroPlugin: got stage %d, want 1 or 2; use GeminiPlugin to split weights too", p.Stage)
	}
	if !(p.MaxNorm >= 0) {
		return sharing{}, fmt.Errorf("train: LowLevelZeroPlugin: got MaxNorm %v, want 0 or more", p.MaxNorm)
	}
	return sharing{strategy: &replicas.Sharded{Free: p.Stage == 2},
		options: &sharded.Options{MaxNorm: p.MaxNorm, SkipOverflow: true}}, nil
}

// splitLoader prepares l for the ranks of w.
func splitLoader(w *World, l DataLoader) error {
	if l == nil {
		return errors.New("train: prepare data loader: the loader is nil")
	}
	return wrap("prepare data loader", l.Prepare(data.PrepareOptions{Comm: loaderComm{w.transport()}}))
}

// loaderComm is the communication that loaders need from a world.
type loaderComm struct{ collective.Comm }
