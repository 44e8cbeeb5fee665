package trainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/internal/runstate"
	"github.com/heftai/heft/train/optim"
)

// resume continues from a checkpoint if the configuration requests it: from the one that it
// names, or from the newest readable one.
func (t *Trainer[B]) resume(ctx context.Context) error {
	f := &t.c.Files
	var saved *progress.State
	read := func(dir string) (err error) {
		saved, err = progress.Read(dir)
		return err
	}
	switch {
	case f.From != "":
		own := t.numbers()
		err := t.rank.Together(ctx, read(f.From))
		if err == nil {
			_, err = t.c.Store.Load(ctx, f.From)
		}
		if err == nil && f.OwnOptions {
			err = t.setNumbers(own)
		}
		if err != nil && ctx.Err() == nil {
			dir, names := older(f.From)
			err = fmt.Errorf("%w; %s", err, t.c.Store.AdviseOlder(ctx, dir, names, read))
		}
		if err != nil {
			return fmt.Errorf("train: load state: %w", errtext.Below("train", err))
		}
	case f.Resume && f.Dir != "":
		names, err := progress.Checkpoints(f.Dir)
		if err = t.rank.Together(ctx, err); err != nil {
			return fmt.Errorf("train: trainer: %w", errtext.Below("train", err))
		}
		_, err = t.c.Store.LoadNewest(ctx, f.Dir, names, read)
		if errors.Is(err, runstate.ErrNone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("train: load state: %w", errtext.Below("train", err))
		}
	default:
		return nil
	}
	if saved.MaxSteps != t.State.MaxSteps && !f.OwnOptions {
		t.c.Warn.WarnContext(ctx, "the checkpoint is of a run of another length: its schedule was made for that",
			"checkpoint_max_steps", saved.MaxSteps, "max_steps", t.State.MaxSteps)
	}
	t.resized = saved.MaxSteps != t.State.MaxSteps || f.OwnOptions
	t.State.Continue(saved)
	t.resumed = true
	return t.c.Listener.LoadState(t.State.StatefulCallbacks)
}

// older returns the directory of a checkpoint and the names of those in it that were saved
// earlier.
func older(path string) (dir string, names []string) {
	path = filepath.Clean(path)
	dir = filepath.Dir(path)
	names, err := progress.Checkpoints(dir)
	if err != nil {
		return dir, nil
	}
	return dir, names[:max(0, slices.Index(names, filepath.Base(path)))]
}

// numbers are the options of a group of parameters that checkpoints contain.
type numbers struct{ rate, initial, decay, momentum float64 }

// numbers returns the options of the optimizer's groups.
func (t *Trainer[B]) numbers() (all []numbers) {
	for _, g := range t.Optimizer.Groups() {
		all = append(all, numbers{g.LR, g.InitialLR, g.WeightDecay, g.Momentum})
	}
	return all
}

// setNumbers replaces the options that a checkpoint has set by those of this run. The rates become
// those of this run's schedule at the checkpoint's step. A plateau, whose rates depend on the
// evaluations so far, keeps the factor by which it has lowered them.
func (t *Trainer[B]) setNumbers(own []numbers) error {
	var state optim.SchedulerState
	if t.Scheduler != nil {
		state = t.Scheduler.State()
	}
	for i, g := range t.Optimizer.Groups() {
		n := own[i]
		if t.plateau {
			state.LastLR[i] *= n.initial / g.InitialLR
			if state.Best == nil || g.InitialLR == 0 { // it has lowered nothing
				state.LastLR[i] = n.initial
			}
		}
		g.LR, g.InitialLR, g.WeightDecay, g.Momentum = n.rate, n.initial, n.decay, n.momentum
	}
	if t.Scheduler == nil {
		return nil
	}
	if !t.plateau {
		state.LastLR = nil
	}
	return t.Scheduler.LoadState(state)
}
