package checkpoint

import (
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

// A Folder is a directory that is written under a temporary name and then replaces its target as
// a whole: a reader finds either the old directory or the new one, however the writing ended.
// Next to TARGET are
//
//	.TARGET.tmp   the directory that is being written
//	.TARGET.new   the complete directory, synced to disk
//	.TARGET.old   the directory that it replaces, until it is removed
//
// If a process dies between the renames, [Settle] finishes them. A Folder is not safe for
// concurrent use.
type Folder struct {
	Target string
	// Before, if not nil, is called before each change to the disk. If it returns an error,
	// writing stops there, as after a crash. Tests use it.
	Before func(change string) error

	sums map[string]hash.Hash32 // of the files that this Folder has written
}

// ErrCrash is the error that a Before returns to simulate the death of the process.
var ErrCrash = errors.New("the process dies here")

func (f *Folder) beside(suffix string) string { return beside(f.Target, suffix) }

func beside(target, suffix string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+suffix)
}

// Temp returns the directory to write files to.
func (f *Folder) Temp() string { return f.beside(".tmp") }

func (f *Folder) change(format string, args ...any) error {
	if f.Before == nil {
		return nil
	}
	return f.Before(fmt.Sprintf(format, args...))
}

// Settle finishes the renames that a process left undone when it died. Afterwards the directory
// is at target if there ever was a complete one.
func Settle(target string) error {
	ready, old := beside(target, ".new"), beside(target, ".old")
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		for _, from := range []string{ready, old} {
			if _, err := os.Stat(from); err == nil {
				return atomicfile.Rename(from, target)
			}
		}
	}
	return nil
}

// Begin creates an empty directory to write to. If the target exists, it must be empty or contain
// a file called mark or another file that only checkpoints have.
func (f *Folder) Begin(mark string) error {
	if err := os.MkdirAll(filepath.Dir(f.Target), 0o777); err != nil {
		return err
	}
	if err := Settle(f.Target); err != nil {
		return err
	}
	if err := f.replaceable(mark); err != nil {
		return err
	}
	for _, suffix := range []string{".tmp", ".new", ".old"} {
		if err := f.change("remove %s", suffix); err != nil {
			return err
		}
		if err := os.RemoveAll(f.beside(suffix)); err != nil {
			return err
		}
	}
	if err := f.change("make"); err != nil {
		return err
	}
	return os.Mkdir(f.Temp(), 0o777)
}

func (f *Folder) replaceable(mark string) error {
	entries, err := os.ReadDir(f.Target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range []string{mark, ChecksumFile, OptimizerFile} { // a damaged checkpoint may lack some
		if _, err := os.Stat(filepath.Join(f.Target, name)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not a checkpoint: it holds %s, which would be lost", f.Target, entries[0].Name())
}

// Write writes one file.
func (f *Folder) Write(name string, b []byte) error {
	if err := f.change("write %s", name); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.Temp(), name), b, 0o666); err != nil {
		return err
	}
	_, err := f.summed(name).Write(b)
	return err
}

// Commit adds the checksums of all files, syncs all to disk and renames the directory to its target.
func (f *Folder) Commit() error {
	if err := f.writeChecksums(); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	ready, old := f.beside(".new"), f.beside(".old")
	moves := []struct{ from, to string }{{f.Temp(), ready}, {f.Target, old}, {ready, f.Target}}
	for _, m := range moves {
		if err := f.change("rename %s", filepath.Base(m.from)); err != nil {
			return err
		}
		if err := atomicfile.Rename(m.from, m.to); err != nil && (m.from != f.Target || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := f.change("remove .old"); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// sync syncs files, then directories.
func (f *Folder) sync() error {
	err := filepath.WalkDir(f.Temp(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if err := f.change("sync %s", d.Name()); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = file.Sync()
		return errors.Join(err, file.Close())
	})
	if err != nil {
		return err
	}
	return filepath.WalkDir(f.Temp(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = atomicfile.SyncDir(path)
		}
		return err
	})
}

// Discard removes the files that were written. Call it after an error.
func (f *Folder) Discard() { _ = os.RemoveAll(f.Temp()) }

// Remove removes a directory. If the process dies meanwhile, no partial directory remains under
// its name.
func Remove(dir string) error {
	gone := beside(dir, ".gone")
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := atomicfile.Rename(dir, gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}
