package train

import (
	"context"
	"iter"
	"path/filepath"

	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/runstate"
)

// ErrCheckpointExists is returned by [Accelerator.SaveState] if the next automatically named
// checkpoint exists. [Accelerator.SetSaveIteration] changes the number.
var ErrCheckpointExists = runstate.ErrExists

// ErrNoCheckpoint is returned by [Accelerator.LoadState] if there is no checkpoint.
var ErrNoCheckpoint = runstate.ErrNone

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

// naming returns the automatic naming, or nil.
func (c *ProjectConfiguration) naming() *runstate.Naming {
	if !c.AutomaticCheckpointNaming {
		return nil
	}
	return &runstate.Naming{Dir: filepath.Join(c.ProjectDir, "checkpoints"), Limit: c.TotalLimit}
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
// the new one is complete. SaveState fails if the folder has files and is not a checkpoint.
//
// The file names are Accelerate's; docs/formats.md describes the files. As in Accelerate, the
// gradients of an unfinished window are not saved, though the number of its batches is.
// [Corrections].PendingGradients saves them.
func (a *Accelerator) SaveState(ctx context.Context, dir string) (string, error) {
	dir, err := a.store.Save(ctx, dir, a.project.Iteration)
	if err != nil {
		return "", wrap("save state", err)
	}
	a.project.Iteration++
	return dir, wrap("save state", a.store.RemoveOld(ctx))
}

// LatestCheckpoint returns the folder below dir with the highest number in its name. It returns
// [ErrNoCheckpoint] if there is none.
func LatestCheckpoint(dir string) (string, error) { return runstate.Latest(dir) }

// LoadState restores the checkpoint in dir. With automatic naming and an empty dir, it restores the
// readable checkpoint with the highest number, and warns of unreadable ones. The same objects must
// be prepared and registered, in the same order, as when it was saved. All ranks must call it. If a
// file is missing or malformed, or the state of the first optimizer does not fit, LoadState fails
// and changes nothing. The number of ranks may differ from that of the save: a warning then says
// what changes.
//
// As in Accelerate, SaveIteration does not change, so that the next save may find its folder in
// use; [Corrections].SaveIteration continues after the loaded checkpoint. Loaders begin anew (use
// [SkipFirstBatches]), unless DataLoaderConfig.UseStatefulDataLoader is set: then the walk
// continues with the next batch.
func (a *Accelerator) LoadState(ctx context.Context, dir string) error {
	dir, err := a.store.Load(ctx, dir)
	if err != nil {
		return wrap("load state", err)
	}
	if n, ok := checkpoint.Number(filepath.Base(dir)); ok && a.cfg.Corrections.SaveIteration {
		a.project.Iteration = n + 1
	}
	return nil
}

// Buffered is a [Module] with buffers: numbers that are not trained, such as the running moments of
// a batch norm. Checkpoints hold them under their names. With several ranks, all take rank 0's when
// the module is prepared and after each backward pass that averages gradients, as torch's
// DistributedDataParallel does before the next forward pass.
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
	a.store.SaveHooks = append(a.store.SaveHooks, hook)
}

// RegisterLoadStatePreHook calls hook, on every rank, before [Accelerator.LoadState] reads a
// checkpoint. If hook fails, so does LoadState.
func (a *Accelerator) RegisterLoadStatePreHook(hook StateHook) {
	a.store.LoadHooks = append(a.store.LoadHooks, hook)
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
	return wrap("register for checkpointing", a.store.Register(objects...))
}
