package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/modelfiles"
	"github.com/heftai/heft/train/internal/progress"
)

// Save writes a checkpoint of the current step and removes old ones. All ranks must call it.
func (t *Trainer[B]) Save(ctx context.Context) error {
	s, out := &t.State, t.c.Files.Dir
	if out == "" {
		return errors.New("train: trainer: no OutputDir to save to")
	}
	dir := filepath.Join(out, progress.CheckpointName(s.GlobalStep))
	if s.BestGlobalStep != nil {
		best := filepath.Join(out, progress.CheckpointName(*s.BestGlobalStep))
		if _, err := os.Stat(best); err == nil || best == dir {
			s.BestModelCheckpoint = &best
		}
	}
	var err error
	if s.StatefulCallbacks, err = t.c.Listener.SaveState(); err != nil {
		return err
	}
	if err := t.c.Store.SaveWith(ctx, dir, t.writeFiles); err != nil {
		return fmt.Errorf("train: save state: %w", errtext.Below("train", err))
	}
	if err := t.rank.Together(ctx, t.rank.OnMain(func() error { return s.RemoveOld(out, t.c.Files.Limit) })); err != nil {
		return fmt.Errorf("train: trainer: %w", errtext.Below("train", err))
	}
	return t.trigger(ctx, Moment{Event: Saved, Folder: dir})
}

// writeFiles adds the trainer's state to a checkpoint and, with From, the model's config and
// tokenizer.
func (t *Trainer[B]) writeFiles(dir string) error {
	return t.rank.OnMain(func() error {
		if err := t.State.Write(dir); err != nil || t.c.From == "" {
			return err
		}
		return modelfiles.CopyBeside(dir, t.c.From, meta.Float32)
	})
}

// loadBest loads the weights of the best checkpoint.
func (t *Trainer[B]) loadBest(ctx context.Context) error {
	best := t.State.BestModelCheckpoint
	if !t.c.Files.LoadBest {
		return nil
	}
	if best == nil {
		t.c.Warn.WarnContext(ctx, "there is no checkpoint of the best evaluation: the weights are the last ones")
		return nil
	}
	if step := t.State.BestGlobalStep; step != nil && filepath.Base(*best) != progress.CheckpointName(*step) {
		t.c.Warn.WarnContext(ctx, "the best evaluation has no checkpoint: the weights are those of an earlier one", "best_step", *step, "checkpoint", *best)
	}
	step, ok := progress.CheckpointStep(filepath.Base(*best))
	if !ok || step != t.State.GlobalStep { // otherwise its weights are those in memory
		err := t.c.Store.LoadModules(ctx, *best)
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("train: trainer: the best checkpoint: %w", errtext.Below("train", err))
		}
		if err != nil {
			step, ok, err = t.nextBest(ctx, *best, err)
		}
		if !ok || err != nil {
			return err
		}
	}
	t.metrics = t.State.MetricsAt(step) // of the weights at the end of the run
	if t.c.Log != nil && t.bestLost == nil {
		t.c.Log.InfoContext(ctx, "the weights are those of the best evaluation", "of_step", step, "last_step", t.State.GlobalStep)
	}
	return nil
}

// nextBest loads the best weights that are left if the best checkpoint cannot be read, so that a
// run that has done its last step leaves a model. It returns their step, or false for the weights
// in memory, and sets t.bestLost.
func (t *Trainer[B]) nextBest(ctx context.Context, lost string, cause error) (step int, loaded bool, err error) {
	taken := fmt.Sprintf("the last ones, of step %d", t.State.GlobalStep)
	for _, step = range t.c.Best.Ranked(&t.State) {
		dir := filepath.Join(t.c.Files.Dir, progress.CheckpointName(step))
		if step == t.State.GlobalStep {
			break
		}
		if dir == lost {
			continue
		}
		err := t.c.Store.LoadModules(ctx, dir)
		if ctx.Err() != nil {
			return 0, false, fmt.Errorf("train: trainer: %s: %w", dir, errtext.Below("train", err))
		}
		if err == nil {
			taken, loaded = "those of "+dir+", the next best evaluation", true
			break
		}
	}
	t.bestLost = fmt.Errorf("the best checkpoint %s cannot be read: %w; the weights are %s", lost, errtext.Below("train", cause), taken)
	t.c.Warn.WarnContext(ctx, "the best checkpoint cannot be read", "checkpoint", lost, "error", cause, "weights", taken)
	return step, loaded, nil
}
