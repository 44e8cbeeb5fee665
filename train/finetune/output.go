package finetune

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/filelock"
)

// open locks and prepares the output folder.
func (j *job) open() (unlock func(), err error) {
	if unlock, err = j.lock(); err != nil {
		return nil, err
	}
	if err := j.begin(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lockFile is the file in the output folder that a run locks while it writes there.
const lockFile = ".heft-train.lock"

// lock creates the output folder and locks it, so that no other run writes to it. The lock of a
// killed run is released. If the file system has no locks, lock warns and continues.
func (j *job) lock() (unlock func(), err error) {
	if err := os.MkdirAll(j.Output, 0o777); err != nil {
		return nil, fmt.Errorf("--output %s: %w", j.Output, err)
	}
	lock, err := filelock.Acquire(filepath.Join(j.Output, lockFile))
	var held *filelock.HeldError
	switch {
	case errors.As(err, &held):
		return nil, fmt.Errorf("--output %s: another train run, process %d, writes to this folder: wait for it or use another folder", j.Output, held.PID)
	case errors.Is(err, errors.ErrUnsupported):
		j.log.Warn("the file system has no locks: make sure that no other run writes to the output folder", "output", j.Output)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("--output %s: locking: %w", j.Output, err)
	}
	return func() {
		if err := lock.Release(); err != nil {
			j.log.Warn("the lock of the output folder was not released", "error", err)
		}
	}, nil
}

// begin checks that the output folder fits this run, and removes temporary files of killed runs.
func (j *job) begin() error {
	from, err := os.Stat(j.model)
	if err != nil {
		return err
	}
	to, err := os.Stat(j.Output)
	if err != nil {
		return err
	}
	if os.SameFile(from, to) {
		return misusef("--output is the folder of the model: use another folder")
	}
	atomicfile.RemoveStale(j.Output)
	stale := []string{".checkpoint-*.tmp", ".checkpoint-*.gone", rollDir + "*", scoredDir} // left by a killed process
	if err := removeAll(j.Output, stale); err != nil {
		return err
	}
	checkpoints, err := filepath.Glob(filepath.Join(j.Output, checkpointNames))
	if err != nil {
		return err
	}
	if j.Resume == "never" {
		if err := j.checkRemoved(checkpoints); err != nil {
			return err
		}
	}
	return j.settle(len(checkpoints) > 0 && j.Resume == "auto")
}

// checkpointNames is the pattern of the names of checkpoints.
const checkpointNames = "checkpoint-*"

// checkRemoved returns an error if the run needs files of a checkpoint that --resume never removes.
func (j *job) checkRemoved(checkpoints []string) error {
	needed := [][2]string{{"--model", j.model}}
	if dir, ok := strings.CutPrefix(j.LoRA, adapterFrom); ok {
		needed = append(needed, [2]string{"--lora", dir})
	}
	for _, path := range j.files {
		needed = append(needed, [2]string{"--data", path})
	}
	for _, f := range j.evalFiles() {
		needed = append(needed, [2]string{"--eval-data", f.of})
	}
	for _, dir := range checkpoints {
		for _, n := range needed {
			if inside(n[1], dir) {
				return misusef("--resume never removes the checkpoints in --output %s, but %s needs %s: use another --output", j.Output, n[0], n[1])
			}
		}
	}
	return nil
}

// inside reports whether path is dir or below it, after following symbolic links.
func inside(path, dir string) bool {
	path, err := realPath(path)
	if err != nil {
		return false // a missing file is reported where it is opened
	}
	dir, err = realPath(dir)
	return err == nil && (path == dir || strings.HasPrefix(path, dir+string(filepath.Separator)))
}

func realPath(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// claim makes the output folder that of this run: it writes the settings of a new run and, with
// --resume never, removes the checkpoints of an earlier one. Call it after reading the data, so that
// a run that cannot start removes nothing.
func (j *job) claim() error {
	if j.fresh == nil {
		return nil
	}
	if j.Resume == "never" {
		if err := removeAll(j.Output, []string{checkpointNames}); err != nil {
			return err
		}
	}
	return atomicfile.WriteFile(filepath.Join(j.Output, runFile), j.fresh)
}

// removeAll removes everything in dir that matches a pattern.
func removeAll(dir string, patterns []string) error {
	for _, p := range patterns {
		names, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}
