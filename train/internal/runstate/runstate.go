// Package runstate saves and restores the state of a training run: the weights of prepared modules,
// optimizers, schedulers, the scaler, registered objects, and for each rank its generator, its
// position in an accumulation window and the positions of its loaders. A [Store] does so for one
// rank. Package checkpoint has the formats of the files.
package runstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/rank"
)

// ErrExists says that the next automatically named checkpoint exists.
var ErrExists = errors.New("the checkpoint exists; set the iteration to continue with")

// ErrNone says that there is no checkpoint.
var ErrNone = errors.New("no such checkpoint")

var errNoFolder = errors.New("neither a folder nor automatic naming")

// Hook is called with the folder of a checkpoint, while it is written or before it is read.
type Hook = func(dir string) error

// Store saves and restores the state of one rank. It belongs to the rank's goroutine.
type Store struct {
	Rank *rank.Rank
	// Naming names checkpoints automatically. Nil does not.
	Naming *Naming
	// SkipFrozen leaves out parameters that do not train.
	SkipFrozen bool
	// RestoreLoaders lets Load restore the positions of loaders.
	RestoreLoaders bool
	// SplitBatches says that loaders split each batch between the ranks.
	SplitBatches bool
	// PendingGradients saves the gradients of an unfinished window.
	PendingGradients bool
	// Warn receives messages about a checkpoint that is loaded.
	Warn func(message string, args ...any)

	SaveHooks, LoadHooks []Hook
	// BeforeChange, if not nil, is called before each change to the disk. Its error ends the
	// writing there, as a crash would. Tests use it.
	BeforeChange func(change string) error

	registered []Stateful
}

// Naming names checkpoints Dir/checkpoint_N.
type Naming struct {
	Dir string
	// Limit is how many checkpoints are kept. 0 keeps all.
	Limit int
}

// Latest returns the checkpoint of dir with the highest number in its name, or ErrNone.
func Latest(dir string) (string, error) {
	names, err := checkpoint.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(names) == 0 {
		return "", fmt.Errorf("train: %w: %s has none", ErrNone, dir)
	}
	return filepath.Join(dir, names[len(names)-1]), nil
}

// Save writes a checkpoint to dir or, with Naming, to the folder of number iteration. It returns the
// folder. All ranks must call it.
func (s *Store) Save(ctx context.Context, dir string, iteration int) (string, error) {
	f, err := s.begin(ctx, dir, iteration)
	if err != nil {
		return "", err
	}
	r := s.Rank
	err = r.Together(ctx, s.write(f))
	if err == nil {
		err = r.Together(ctx, r.OnMain(f.Commit))
	}
	if err != nil {
		if !errors.Is(err, checkpoint.ErrCrash) {
			_ = r.OnMain(func() error { f.Discard(); return nil })
		}
		return "", err
	}
	return f.Target, nil
}

// SaveWith is Save with a hook for this checkpoint alone.
func (s *Store) SaveWith(ctx context.Context, dir string, hook Hook) error {
	n := len(s.SaveHooks)
	s.SaveHooks = append(s.SaveHooks, hook)
	defer func() { s.SaveHooks = s.SaveHooks[:n] }()
	_, err := s.Save(ctx, dir, 0)
	return err
}

// RemoveOld removes the automatically named checkpoints beyond the limit, those with the lowest
// numbers first. All ranks must call it.
func (s *Store) RemoveOld(ctx context.Context) error {
	return s.Rank.Together(ctx, s.Rank.OnMain(func() error {
		if s.Naming == nil || s.Naming.Limit < 1 {
			return nil
		}
		all, err := checkpoint.List(s.Naming.Dir)
		if err != nil {
			return err
		}
		for _, name := range all[:max(0, len(all)-s.Naming.Limit)] {
			if err := checkpoint.Remove(filepath.Join(s.Naming.Dir, name)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// begin determines the folder to write to, and creates it on rank 0.
func (s *Store) begin(ctx context.Context, dir string, iteration int) (*checkpoint.Folder, error) {
	var err error
	switch {
	case s.Naming != nil:
		dir = filepath.Join(s.Naming.Dir, fmt.Sprintf("checkpoint_%d", iteration))
		if _, there := os.Lstat(dir); there == nil {
			err = fmt.Errorf("%w: %s", ErrExists, dir)
		}
	case dir == "":
		err = errNoFolder
	default:
		dir = filepath.Clean(dir)
	}
	if err = s.Rank.Together(ctx, errors.Join(err, s.Rank.SameFolder(ctx, dir))); err != nil {
		return nil, err
	}
	f := &checkpoint.Folder{Target: dir, Before: s.BeforeChange}
	return f, s.Rank.Together(ctx, s.Rank.OnMain(func() error { return f.Begin(checkpoint.RankFile(0)) }))
}

// Load restores the checkpoint in dir or, with Naming and an empty dir, the latest one that can be
// read. It returns the folder. If a file is missing or malformed, or the state of the first optimizer
// does not fit, it fails and changes nothing. All ranks must call it.
func (s *Store) Load(ctx context.Context, dir string) (string, error) {
	from := dir
	switch {
	case dir != "":
		from = filepath.Clean(dir)
		dir = from
	case s.Naming != nil:
		from = s.Naming.Dir
	}
	if err := s.Rank.SameFolder(ctx, from); err != nil {
		return "", err
	}
	if dir == "" && s.Naming != nil {
		names, err := checkpoint.List(s.Naming.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err = s.Rank.Together(ctx, err); err != nil {
			return "", err
		}
		return s.LoadNewest(ctx, s.Naming.Dir, names, nil)
	}
	dir, err := s.find(ctx, dir)
	var r *checkpoint.Reading
	if err == nil {
		r, err = s.read(dir)
	}
	if err = s.Rank.Together(ctx, err); err != nil {
		return "", err
	}
	return dir, s.Rank.Together(ctx, r.Apply())
}

// LoadNewest restores the last of the checkpoints that can be read: names are folders of dir, as
// rank 0 knows them. It warns of those that it passes over. If none can be read it returns the error
// of the last one, or [ErrNone] if there are no names, and changes nothing. Also, if not nil, reads
// further files of a checkpoint. All ranks must call it.
func (s *Store) LoadNewest(ctx context.Context, dir string, names []string, also func(dir string) error) (string, error) {
	all, err := collective.AllGather(ctx, s.Rank.Comm, names)
	if err != nil {
		return "", err
	}
	if len(all[0]) == 0 {
		return "", fmt.Errorf("train: %w: %s has none", ErrNone, dir)
	}
	path, r, damaged := s.newest(ctx, dir, all[0], also)
	if r == nil {
		return "", fmt.Errorf("%w; %s", damaged[0], noOlder(dir))
	}
	if err = s.Rank.Together(ctx, r.Apply()); err == nil {
		s.warnDamaged(damaged, path)
	}
	return path, err
}

// newest reads the last of the checkpoints that can be read, and changes nothing. It returns the errors of those after
// it. The reading is nil if none can be read.
func (s *Store) newest(ctx context.Context, dir string, names []string, also func(dir string) error) (path string, r *checkpoint.Reading, damaged []error) {
	for _, name := range slices.Backward(names) {
		path := filepath.Join(dir, name)
		r, err := s.read(path)
		if err == nil && also != nil {
			err = also(path)
		}
		if err = s.Rank.Together(ctx, err); err == nil {
			return path, r, damaged
		}
		damaged = append(damaged, fmt.Errorf("%s: %w", path, err))
	}
	return "", nil, damaged
}

func noOlder(dir string) string {
	return "no older checkpoint in " + dir + " can be read: start again without resuming"
}

// WayOut says which checkpoint to take where another one in dir cannot be read: names are the older ones, as rank 0
// knows them. Also is as in LoadNewest. All ranks must call it.
func (s *Store) WayOut(ctx context.Context, dir string, names []string, also func(dir string) error) string {
	all, err := collective.AllGather(ctx, s.Rank.Comm, names)
	if err != nil {
		return noOlder(dir)
	}
	if path, r, _ := s.newest(ctx, dir, all[0], also); r != nil {
		return "the older checkpoint " + path + " can be read: resume from it"
	}
	return noOlder(dir)
}

// warnDamaged says why checkpoints were passed over for another one.
func (s *Store) warnDamaged(damaged []error, taken string) {
	for _, err := range damaged {
		if s.Rank.IsMain() {
			s.Warn("a checkpoint cannot be read: an older one is taken", "error", err, "taken", taken)
		}
	}
}

// LoadModules restores the weights of the modules only. All ranks must call it.
func (s *Store) LoadModules(ctx context.Context, dir string) error {
	r := &checkpoint.Reading{Dir: dir}
	if err := s.Rank.Together(ctx, s.readModules(r)); err != nil {
		return err
	}
	return r.Apply()
}

func (s *Store) find(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		return "", errNoFolder
	}
	settle := func() error { return checkpoint.Settle(dir) }
	if err := s.Rank.Together(ctx, s.Rank.OnMain(settle)); err != nil {
		return dir, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return dir, fmt.Errorf("%w: %s is not a folder", ErrNone, dir)
	}
	return dir, nil
}
