package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/checkpoint"
)

// ErrCheckpointExists is returned by [Accelerator.SaveState] if the next automatically named
// checkpoint exists. [Accelerator.SetSaveIteration] changes the number.
var ErrCheckpointExists = errors.New("the checkpoint exists already; set the iteration to go on with")

// ErrNoCheckpoint is returned by [Accelerator.LoadState] if there is no checkpoint.
var ErrNoCheckpoint = errors.New("no such checkpoint")

// ProjectConfiguration says where the files of a run are written.
type ProjectConfiguration struct {
	// ProjectDir is the run's folder.
	ProjectDir string
	// LoggingDir is the folder of trackers. Empty means ProjectDir.
	LoggingDir string
	// AutomaticCheckpointNaming saves to ProjectDir/checkpoints/checkpoint_N. N starts at
	// Iteration.
	AutomaticCheckpointNaming bool
	// TotalLimit is how many automatically named checkpoints are kept. 0 keeps all. Those with the
	// lowest numbers are removed once the new one is in place.
	TotalLimit int
	// Iteration is the number of the next automatically named checkpoint.
	Iteration int
	// SkipFrozen leaves parameters that do not train out of checkpoints. The program must restore
	// them by other means, such as loading the base model of an adapter.
	SkipFrozen bool
}

func (c *ProjectConfiguration) checkpoints() string {
	return filepath.Join(c.ProjectDir, "checkpoints")
}

// ProjectDir returns the run's folder.
func (a *Accelerator) ProjectDir() string { return a.project.ProjectDir }

// SaveIteration returns the number of the next automatically named checkpoint.
func (a *Accelerator) SaveIteration() int { return a.project.Iteration }

// SetSaveIteration makes n the number of the next automatically named checkpoint.
func (a *Accelerator) SetSaveIteration(n int) { a.project.Iteration = n }

// SaveState saves a checkpoint from which the run can resume: the weights of prepared modules; the
// states of optimizers, schedulers and the scaler; registered objects; and for each rank its
// generator, its accumulation window and the positions of its loaders. It writes to dir, or with
// automatic naming to the next numbered folder, and returns that folder. All ranks must call it.
//
// The new folder replaces the old one as a whole. If the process is killed, the old checkpoint or
// the new one is there. SaveState fails if the folder has files and is not a checkpoint.
//
// The file names are Accelerate's; docs/formats.md describes the files. As in Accelerate, the
// gradients of an unfinished window are not saved, though the number of its batches is.
// [Corrections].PendingGradients saves them.
func (a *Accelerator) SaveState(ctx context.Context, dir string) (string, error) {
	f, err := a.beginSave(ctx, dir)
	if err != nil {
		return "", wrap("save state", err)
	}
	err = a.together(ctx, a.writeState(f))
	if err == nil {
		err = a.together(ctx, a.onMain(f.Commit))
	}
	if err != nil {
		if !errors.Is(err, checkpoint.ErrCrash) {
			_ = a.onMain(func() error { f.Discard(); return nil })
		}
		return "", wrap("save state", err)
	}
	if a.project.AutomaticCheckpointNaming {
		err = a.together(ctx, a.onMain(a.dropOld))
	}
	a.project.Iteration++
	return f.Target, wrap("save state", err)
}

// onMain runs f on rank 0.
func (a *Accelerator) onMain(f func() error) error {
	if !a.IsMainProcess() {
		return nil
	}
	return f()
}

// together returns an error on all ranks if any has one: its own, else another rank's.
func (a *Accelerator) together(ctx context.Context, err error) error {
	if a.comm.Size() == 1 {
		return err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, failed := collective.AllGather(ctx, a.comm, text)
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	for r, text := range all {
		if text != "" {
			return fmt.Errorf("rank %d: %s", r, text)
		}
	}
	return nil
}

// beginSave determines the folder to write to, and creates it on rank 0.
func (a *Accelerator) beginSave(ctx context.Context, dir string) (*checkpoint.Folder, error) {
	if a.project.AutomaticCheckpointNaming {
		dir = filepath.Join(a.project.checkpoints(), fmt.Sprintf("checkpoint_%d", a.project.Iteration))
	} else if dir == "" {
		return nil, errors.New("neither a folder nor automatic naming")
	}
	f := &checkpoint.Folder{Target: filepath.Clean(dir), Before: a.beforeChange}
	var err error
	if a.project.AutomaticCheckpointNaming {
		if _, there := os.Lstat(f.Target); there == nil {
			err = fmt.Errorf("%w: %s", ErrCheckpointExists, f.Target)
		}
	}
	if err = a.together(ctx, err); err != nil {
		return nil, err
	}
	return f, a.together(ctx, a.onMain(func() error { return f.Begin(checkpoint.RankFile(0)) }))
}

// dropOld removes automatically named checkpoints beyond the limit.
func (a *Accelerator) dropOld() error {
	if a.project.TotalLimit < 1 {
		return nil
	}
	all, err := checkpoint.List(a.project.checkpoints())
	if err != nil {
		return err
	}
	for _, name := range all[:max(0, len(all)-a.project.TotalLimit)] {
		if err := checkpoint.Remove(filepath.Join(a.project.checkpoints(), name)); err != nil {
			return err
		}
	}
	return nil
}

// LatestCheckpoint returns the folder below dir with the highest number in its name. It returns
// [ErrNoCheckpoint] if there is none.
func LatestCheckpoint(dir string) (string, error) {
	names, err := checkpoint.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(names) == 0 {
		return "", fmt.Errorf("train: %w: %s has none", ErrNoCheckpoint, dir)
	}
	return filepath.Join(dir, names[len(names)-1]), nil
}

// LoadState restores the checkpoint in dir, or with automatic naming and an empty dir the
// checkpoint with the highest number. The same things must be prepared and registered, in the same
// order, as when it was saved. All ranks must call it. If a file is missing or malformed, or the
// state of the first optimizer does not fit, LoadState fails and changes nothing.
//
// As in Accelerate, SaveIteration does not change, so that the next save may find its folder in
// use; [Corrections].SaveIteration continues after the loaded checkpoint. Loaders begin anew (use
// [SkipFirstBatches]), unless DataLoaderConfig.UseStatefulDataLoader is set: then the walk
// continues with the next batch.
func (a *Accelerator) LoadState(ctx context.Context, dir string) error {
	dir, err := a.findState(ctx, dir)
	var r *checkpoint.Reading
	if err == nil {
		r, err = a.readState(dir)
	}
	if err = a.together(ctx, err); err != nil {
		return wrap("load state", err)
	}
	if err = a.together(ctx, r.Apply()); err != nil {
		return wrap("load state", err)
	}
	if n, ok := checkpoint.Number(filepath.Base(dir)); ok && a.cfg.Corrections.SaveIteration {
		a.project.Iteration = n + 1
	}
	return nil
}

func (a *Accelerator) findState(ctx context.Context, dir string) (string, error) {
	switch {
	case dir == "" && a.project.AutomaticCheckpointNaming:
		return LatestCheckpoint(a.project.checkpoints())
	case dir == "":
		return "", errors.New("neither a folder nor automatic naming")
	}
	dir = filepath.Clean(dir)
	if err := a.together(ctx, a.onMain(func() error { return checkpoint.Settle(dir) })); err != nil {
		return dir, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return dir, fmt.Errorf("%w: %s is not a folder", ErrNoCheckpoint, dir)
	}
	return dir, nil
}

// Buffered is a [Module] with buffers: numbers that are not trained, such as the running moments of
// a batch norm. Checkpoints hold them under their names.
type Buffered interface {
	Module
	Buffers() iter.Seq2[string, []float32]
}

// StateHook is called with the folder of a checkpoint, while it is written or before it is read.
// Files that it writes there while saving become part of the checkpoint.
type StateHook func(dir string) error

// RegisterSaveStatePreHook calls hook, on every rank, for each checkpoint that
// [Accelerator.SaveState] writes.
func (a *Accelerator) RegisterSaveStatePreHook(hook StateHook) {
	a.saveHooks = append(a.saveHooks, hook)
}

// RegisterLoadStatePreHook calls hook, on every rank, before [Accelerator.LoadState] reads a
// checkpoint. If hook fails, so does LoadState.
func (a *Accelerator) RegisterLoadStatePreHook(hook StateHook) {
	a.loadHooks = append(a.loadHooks, hook)
}

// Stateful is an object that defines what checkpoints save of it.
type Stateful interface {
	// StateDict returns the state, any value that encoding/json can write.
	StateDict() (any, error)
	// LoadStateDict restores the JSON form of a state that StateDict returned.
	LoadStateDict(state []byte) error
}

// RegisterForCheckpointing adds objects to checkpoints, in order. Each must be a [Stateful], or a
// pointer to a value that encoding/json can write and read. If any is not, none is added, and the
// error names all of those.
func (a *Accelerator) RegisterForCheckpointing(objects ...any) error {
	var all []Stateful
	var wrong []string
	for i, x := range objects {
		s, err := stateful(x)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("object %d, a %T: %v", i+1, x, err))
		}
		all = append(all, s)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("train: register for checkpointing: %s", strings.Join(wrong, "; "))
	}
	a.custom = append(a.custom, all...)
	return nil
}

// plain saves the value that a pointer points to.
type plain struct{ to any }

func (p plain) StateDict() (any, error)      { return p.to, nil }
func (p plain) LoadStateDict(b []byte) error { return json.Unmarshal(b, p.to) }
