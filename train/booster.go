package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/internal/runstate"
	"github.com/heftai/heft/train/internal/sharded"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Booster trains a model with a [Plugin], as Colossal-AI's Booster does. It neither divides the
// loss nor counts batches. To accumulate, divide the loss, and step at the end of a window.
//
//	plugin := &train.TorchDDPPlugin{World: world}
//	booster, err := train.NewBooster(plugin)
//	err = plugin.PrepareDataLoader(loader)
//	_, opt, _, _, _, err := booster.Boost(model, sgd, nil, loader, nil)
//	for batch, err := range loader.All(ctx) {
//		…
//		pass := func() error { return booster.Backward(ctx, loss(batch), opt) } // loss / window
//		if (idx+1)%window != 0 {
//			err = booster.NoSync(model, pass)
//		} else if err = pass(); err == nil {
//			err = opt.Step()
//			opt.ZeroGrad()
//		}
//	}
//
// A Booster must be used only by the goroutine of its rank.
type Booster struct {
	plugin Plugin
	acc    *Accelerator
	models []Module
	fresh  bool
}

// NewBooster makes the booster of one rank. It fails if the plugin's fields are not valid.
func NewBooster(plugin Plugin) (*Booster, error) {
	if plugin == nil {
		return nil, errors.New("train: booster: got no plugin, want a TorchDDPPlugin, LowLevelZeroPlugin or GeminiPlugin")
	}
	if err := checkNil(plugin); err != nil {
		return nil, err
	}
	acc, err := New(Config{World: plugin.world(), Plugin: plugin})
	if err != nil {
		return nil, err
	}
	how, err := plugin.sharing()
	return &Booster{plugin: plugin, acc: acc, fresh: how.fresh}, err
}

// Boost prepares the objects of a loop and returns them: the model with rank 0's weights, the
// optimizer that steps with the plugin, the criterion, the loader and the scheduler. All except the
// model may be nil. Only the optimizer is a new value; use it instead of the one given. Boost does
// not split the loader: use the plugin's PrepareDataLoader. The scheduler still moves once per
// call. All ranks must call Boost together.
func (b *Booster) Boost(model Module, opt optim.Optimizer, criterion any, loader DataLoader, sched optim.Scheduler) (Module, optim.Optimizer, any, DataLoader, optim.Scheduler, error) {
	err := b.acc.Prepare(model)
	if err == nil {
		b.models = append(b.models, model)
		if opt != nil {
			err = b.acc.Prepare(&opt)
		}
	}
	if err != nil {
		return nil, nil, nil, nil, nil, fmt.Errorf("train: boost: %w", errtext.Below("train", err))
	}
	return model, opt, criterion, loader, sched, nil
}

// Backward adds the gradients of loss to those of the parameters, and averages them over the ranks,
// except within [Booster.NoSync]. opt must be the optimizer that Boost returned. With a
// [GeminiPlugin] that does not accumulate, the gradients replace those of the previous pass.
func (b *Booster) Backward(ctx context.Context, loss *tensor.Tensor, opt optim.Optimizer) error {
	if b.fresh && opt != nil {
		opt.ZeroGrad()
	}
	return b.acc.Backward(ctx, loss)
}

// NoSync runs f, whose backward passes keep their gradients on this rank. The next pass outside of
// NoSync averages their sum. If the plugin averages each pass (stage 2 of ZeRO, Gemini), NoSync
// returns [ErrNoSync] and does not run f.
func (b *Booster) NoSync(model Module, f func() error) error {
	if !b.plugin.SupportNoSync() {
		return ErrNoSync
	}
	return b.acc.NoSync(model, f)
}

// Rank returns this rank's number.
func (b *Booster) Rank() int { return b.acc.ProcessIndex() }

// SaveModel writes the weights into dir, as [SaveModel] does: one file, or with shard several of at
// most o.MaxShardSize, by default 1 GB. All ranks must call it.
func (b *Booster) SaveModel(ctx context.Context, model Module, dir string, shard bool, o SaveModelOptions) error {
	switch {
	case !shard:
		o.MaxShardSize = -1
	case o.MaxShardSize == 0:
		o.MaxShardSize = 1e9
	}
	return SaveModel(ctx, b.acc, model, dir, o)
}

// LoadModel reads the weights in a folder of SaveModel, one file or shards, into model. Names,
// shapes and the dtype float32 must be those of model. On error model is unchanged, unless a file
// becomes unreadable during reading. All ranks must call it.
func (b *Booster) LoadModel(ctx context.Context, model Module, dir string) error {
	arrays, skip := runstate.Readable(b.acc.rank, checkpoint.Arrays(model, false))
	others := map[string]bool{}
	for _, name := range skip {
		others[name] = true
	}
	set, err := checkpoint.ReadTensors(dir, "", arrays, others)
	err = b.acc.rank.Together(ctx, err)
	if err == nil {
		err = b.acc.rank.Together(ctx, set())
	}
	return wrap("load model", err)
}

// SaveOptimizer writes the state of an optimizer into dir: the whole state, by rank 0, or with
// shard each rank's part. A whole state can be loaded by any number of ranks with any plugin. Parts
// can only be loaded by the same number of ranks with the same plugin. All ranks must call it.
func (b *Booster) SaveOptimizer(ctx context.Context, opt optim.Optimizer, dir string, shard bool) error {
	o := rank.Unwrapped(opt)
	s, split := o.(*sharded.Optimizer)
	shard = shard && split && !s.Whole()
	f := checkpoint.Folder{Target: dir}
	err := b.acc.rank.SameFolder(ctx, dir)
	if err == nil {
		err = b.acc.rank.Together(ctx, b.acc.rank.OnMain(func() error { return f.Begin(optimizerMark) }))
	}
	if err != nil {
		return wrap("save optimizer", err)
	}
	switch {
	case shard:
		err = f.WriteOptimizer(shardFile(b.Rank()), shardOnly{s})
	default:
		if split {
			err = s.Gather()
		}
		err = errors.Join(err, b.acc.rank.OnMain(func() error { return f.WriteOptimizer(checkpoint.OptimizerFile, o) }))
	}
	err = b.acc.rank.Together(ctx, err)
	if err == nil {
		err = b.acc.rank.OnMain(func() error {
			info := optimizerInfo{Ranks: 1}
			if shard {
				info.Ranks = b.acc.NumProcesses()
			}
			return errors.Join(f.WriteJSON(optimizerMark, info), f.Commit())
		})
	} else {
		err = errors.Join(err, b.acc.rank.OnMain(func() error { f.Discard(); return nil }))
	}
	return wrap("save optimizer", b.acc.rank.Together(ctx, err))
}

// LoadOptimizer restores a state of SaveOptimizer. All ranks must call it.
func (b *Booster) LoadOptimizer(ctx context.Context, opt optim.Optimizer, dir string) error {
	err := b.loadOptimizer(rank.Unwrapped(opt), dir)
	return wrap("load optimizer", b.acc.rank.Together(ctx, err))
}

func (b *Booster) loadOptimizer(o optim.Optimizer, dir string) error {
	x, ok := o.(optim.Stateful)
	if !ok {
		return fmt.Errorf("an optimizer of type %T cannot be loaded", o)
	}
	info, err := checkpoint.ReadJSON[optimizerInfo](&checkpoint.Reading{Dir: dir}, optimizerMark)
	if err != nil {
		return err
	}
	s, split := o.(*sharded.Optimizer)
	if info.Ranks == 1 {
		return checkpoint.ReadOptimizer(joined(dir, checkpoint.OptimizerFile), x.LoadState)
	}
	if !split || s.Whole() || info.Ranks != b.acc.NumProcesses() {
		return fmt.Errorf("%s has the parts of %d ranks: load it with the same plugin and number of ranks, or save it whole", dir, info.Ranks)
	}
	return checkpoint.ReadOptimizer(joined(dir, shardFile(b.Rank())), s.LoadShardState)
}

// SaveLRScheduler writes the state of a scheduler into the file path, as JSON. All ranks must call
// it; rank 0 writes.
func (b *Booster) SaveLRScheduler(ctx context.Context, sched optim.Scheduler, path string) error {
	err := b.acc.rank.OnMain(func() error { return writeJSON(path, sched.State()) })
	return wrap("save scheduler", b.acc.rank.Together(ctx, err))
}

// LoadLRScheduler restores a state of SaveLRScheduler. All ranks must call it.
func (b *Booster) LoadLRScheduler(ctx context.Context, sched optim.Scheduler, path string) error {
	state, err := readJSON[optim.SchedulerState](path)
	if err == nil {
		err = sched.LoadState(state)
	}
	return wrap("load scheduler", b.acc.rank.Together(ctx, err))
}
