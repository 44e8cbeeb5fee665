// Package runstate saves and restores the state of a training run: the weights of prepared
// modules, optimizers, schedulers, the scaler and registered objects, and for each rank its
// random generator, its position in an accumulation window and the positions of its loaders. A
// [Store] does so for one rank. Package checkpoint implements the file formats.
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

// ErrExists means that the next automatically named checkpoint exists already.
var ErrExists = errors.New("the checkpoint exists; set the iteration to continue with")

// ErrNone means that there is no checkpoint.
var ErrNone = errors.New("no such checkpoint")

var errNoFolder = errors.New("neither a folder nor automatic naming")

// Hook is called with the directory of a checkpoint, while it is written or before it is read.
type Hook = func(dir string) error

// Store saves and restores the state of one rank. It must be used only by the rank's goroutine.
type Store struct {
	Rank *rank.Rank
	// Naming names checkpoints automatically. If it is nil, callers name them.
	Naming *Naming
	// SkipFrozen omits parameters that are not trained.
	SkipFrozen bool
	// RestoreLoaders makes Load restore the positions of loaders.
	RestoreLoaders bool
	// FirstLoaders restores the positions of the first loaders if the checkpoint has more or fewer
	// of them: a Trainer prepares its training data first, and other evaluation data may follow.
	FirstLoaders bool
	// SplitBatches reports whether loaders split each batch between the ranks.
	SplitBatches bool
	// PendingGradients saves the gradients of an unfinished window.
	PendingGradients bool
	// Warn receives messages about a checkpoint that is loaded.
	Warn func(message string, args ...any)

	SaveHooks, LoadHooks []Hook
	// BeforeChange, if not nil, is called before each change to the disk. If it returns an error,
	// writing stops there, as after a crash. Tests use it.
	BeforeChange func(change string) error

	registered []Stateful
	marked     *ownState // see Mark
	rewound    bool
}

// Mark remembers the state of this rank alone: its generator and positions.
func (s *Store) Mark() error {
	s.rewound = false
	own, err := s.ownState()
	s.marked = &own
	return err
}

// Rewind makes checkpoints contain the state that Mark has remembered, until the next Mark. The
// caller drops the gradients since then and changes nothing else.
func (s *Store) Rewind() { s.rewound = true }

// Naming names checkpoints Dir/checkpoint_N.
type Naming struct {
	Dir string
	// Limit is the number of checkpoints to keep. 0 keeps all.
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

// Save writes a checkpoint to dir or, with Naming, to the directory for number iteration. It
// returns the directory. All ranks must call it.
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

// SaveWith is Save with a hook for this checkpoint only.
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

// begin determines the directory to write to, and creates it on rank 0.
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

// Load restores the checkpoint in dir or, with Naming and an empty dir, the latest readable one.
// It returns the directory. If a file is missing or malformed, or the state of the first
// optimizer does not fit, it returns an error and changes nothing. All ranks must call it.
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

// LoadNewest restores the last readable checkpoint. names are directories in dir, as rank 0 knows
// them. It warns of checkpoints that it skips. If none is readable it changes nothing and returns
// the error of the last one, or [ErrNone] if there are no names. also, if not nil, reads further
// files of a checkpoint. All ranks must call it.
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

// newest reads the last readable checkpoint, and changes nothing. It also returns the errors of
// the later checkpoints. The reading is nil if none is readable.
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

// AdviseOlder returns advice on which checkpoint to load when another one in dir is not readable.
// names are the older ones, as rank 0 knows them. also is as for LoadNewest. All ranks must call
// it.
func (s *Store) AdviseOlder(ctx context.Context, dir string, names []string, also func(dir string) error) string {
	all, err := collective.AllGather(ctx, s.Rank.Comm, names)
	if err != nil {
		return noOlder(dir)
	}
	if path, r, _ := s.newest(ctx, dir, all[0], also); r != nil {
		return "the older checkpoint " + path + " can be read: resume from it"
	}
	return noOlder(dir)
}

// warnDamaged warns of the checkpoints that were skipped, and why.
func (s *Store) warnDamaged(damaged []error, taken string) {
	for _, err := range damaged {
		if s.Rank.IsMain() {
			s.Warn("a checkpoint cannot be read: an older one is taken", "error", err, "taken", taken)
		}
	}
}

// LoadModules restores only the weights of the modules. All ranks must call it.
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
