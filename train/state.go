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

// ErrCheckpointExists is what [Accelerator.SaveState] returns where automatic naming
// comes to a checkpoint that is there: [Accelerator.SetSaveIteration] goes on after it.
var ErrCheckpointExists = errors.New("the checkpoint exists already; set the iteration to go on with")

// ErrNoCheckpoint is what [Accelerator.LoadState] returns where there is none.
var ErrNoCheckpoint = errors.New("no such checkpoint")

// ProjectConfiguration says where a run's files go.
type ProjectConfiguration struct {
	// ProjectDir is the run's folder.
	ProjectDir string
	// LoggingDir is where trackers write; empty is ProjectDir.
	LoggingDir string
	// AutomaticCheckpointNaming saves to ProjectDir/checkpoints/checkpoint_N, N counting
	// from Iteration.
	AutomaticCheckpointNaming bool
	// TotalLimit is how many automatically named checkpoints stay; 0 is all. Those with
	// the lowest numbers go, once the new one is in its place.
	TotalLimit int
	// Iteration is the number of the next automatically named checkpoint.
	Iteration int
	// SkipFrozen leaves parameters that do not train out of checkpoints: they are to be
	// what they were by other means, as those of a model that adapters are trained on.
	SkipFrozen bool
}

func (c *ProjectConfiguration) checkpoints() string {
	return filepath.Join(c.ProjectDir, "checkpoints")
}

// ProjectDir is the run's folder.
func (a *Accelerator) ProjectDir() string { return a.project.ProjectDir }

// SaveIteration is the number of the next automatically named checkpoint.
func (a *Accelerator) SaveIteration() int { return a.project.Iteration }

// SetSaveIteration makes n the number of the next automatically named checkpoint.
func (a *Accelerator) SetSaveIteration(n int) { a.project.Iteration = n }

// SaveState saves what is needed to go on from here: the weights of prepared modules,
// what optimizers, schedulers and the scaler remember, registered objects, and of each
// rank where its generator, its window of accumulation and its loaders are. It writes to
// dir, or with automatic naming to the next numbered folder, and returns that folder. All
// ranks must call it.
//
// Files are written beside the folder, brought to disk, and put in place together: a
// process that is killed leaves the checkpoint that was there before, or the new one. A
// folder that is there must be empty or a checkpoint, which is then replaced.
//
// The files are model.safetensors (a second module model_1), optimizer.safetensors,
// scheduler.json, scaler.json, random_states_RANK.json and custom_checkpoint_N.json:
// Accelerate's, without pickle. Gradients of an unfinished window are not saved, as
// there, though the count of its batches is; [Corrections].PendingGradients saves them.
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

// onMain is f's error on rank 0.
func (a *Accelerator) onMain(f func() error) error {
	if !a.IsMainProcess() {
		return nil
	}
	return f()
}

// together is the error of any rank, on all of them: its own where it has one.
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

// beginSave finds the folder to write to, and makes it on rank 0.
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

// LatestCheckpoint is the folder below dir that has the highest number in its name. The
// error is [ErrNoCheckpoint] if there is none.
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

// LoadState goes on from the checkpoint in dir, or with automatic naming and no dir from
// that with the highest number. The same things must have been prepared and registered,
// in the same order, as when it was saved. All ranks must call it. A file that is missing
// or broken leaves everything as it was; so does a first optimizer whose state does not fit.
//
// As in the reference, SaveIteration stays what it was, so that saving may come to a
// checkpoint that exists; [Corrections].SaveIteration goes on after the one that was
// loaded. And loaders begin anew ([SkipFirstBatches] is for that), unless
// DataLoaderConfig.UseStatefulDataLoader is set: then the walk goes on with the next batch.
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
		return dir, fmt.Errorf("%w: %s is no folder", ErrNoCheckpoint, dir)
	}
	return dir, nil
}

// Buffered is a [Module] with numbers beside its parameters that are part of what it is,
// such as the running moments of a batch norm. Checkpoints hold them under their names.
type Buffered interface {
	Module
	Buffers() iter.Seq2[string, []float32]
}

// StateHook is called while a checkpoint is written or before it is read, with its
// folder: where it is being written, files that are put there become part of it.
type StateHook func(dir string) error

// RegisterSaveStatePreHook lets hook add files to every checkpoint that
// [Accelerator.SaveState] writes. It is called on every rank.
func (a *Accelerator) RegisterSaveStatePreHook(hook StateHook) {
	a.saveHooks = append(a.saveHooks, hook)
}

// RegisterLoadStatePreHook calls hook, on every rank, before [Accelerator.LoadState]
// reads a checkpoint; its error ends that.
func (a *Accelerator) RegisterLoadStatePreHook(hook StateHook) {
	a.loadHooks = append(a.loadHooks, hook)
}

// Stateful is an object that says itself what of it is saved.
type Stateful interface {
	// StateDict is what is saved: anything that has a JSON form.
	StateDict() (any, error)
	// LoadStateDict goes on from the JSON form of what StateDict returned.
	LoadStateDict(state []byte) error
}

// RegisterForCheckpointing adds objects to what is saved and loaded, by their order:
// each a [Stateful], or a pointer to something that encoding/json can write and read. If
// any is neither, none is added and the error names all that are not.
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

// plain saves what a pointer points to.
type plain struct{ to any }

func (p plain) StateDict() (any, error)      { return p.to, nil }
func (p plain) LoadStateDict(b []byte) error { return json.Unmarshal(b, p.to) }
