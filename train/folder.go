package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

// aside writes a folder beside its place and then puts it there whole: who looks for the
// folder, however the writing ended, finds the old one or the new one. Next to TARGET lie
//
//	.TARGET.tmp   what is being written
//	.TARGET.new   all of it, on disk
//	.TARGET.old   what it takes the place of, on its way out
//
// and [settle] brings the new one to its place where a process died just before that.
type aside struct {
	target string
	// before is called before each change to the disk and may end everything there, as
	// a crash would; nil but in tests.
	before func(change string) error
}

var errCrash = errors.New("the process dies here")

func (f *aside) beside(suffix string) string { return beside(f.target, suffix) }

func beside(target, suffix string) string {
	return filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+suffix)
}

// temp is where files are to be written.
func (f *aside) temp() string { return f.beside(".tmp") }

func (f *aside) change(format string, args ...any) error {
	if f.before == nil {
		return nil
	}
	return f.before(fmt.Sprintf(format, args...))
}

// settle finishes what a process that died left undone: after it, the folder is at its
// place if there ever was one.
func settle(target string) error {
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

// begin makes an empty folder to write to. What is at the target must be a folder that
// may be replaced: one that is empty or has a file called mark.
func (f *aside) begin(mark string) error {
	if err := os.MkdirAll(filepath.Dir(f.target), 0o777); err != nil {
		return err
	}
	if err := settle(f.target); err != nil {
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
	return os.Mkdir(f.temp(), 0o777)
}

func (f *aside) replaceable(mark string) error {
	entries, err := os.ReadDir(f.target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(f.target, mark)); err != nil {
		return fmt.Errorf("%s holds %s and is no checkpoint: its files would be lost", f.target, entries[0].Name())
	}
	return nil
}

// write fills one file.
func (f *aside) write(name string, b []byte) error {
	if err := f.change("write %s", name); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.temp(), name), b, 0o666)
}

// commit brings all that was written to disk and the folder to its place.
func (f *aside) commit() error {
	if err := f.sync(); err != nil {
		return err
	}
	ready, old := f.beside(".new"), f.beside(".old")
	moves := []struct{ from, to string }{{f.temp(), ready}, {f.target, old}, {ready, f.target}}
	for _, m := range moves {
		if err := f.change("rename %s", filepath.Base(m.from)); err != nil {
			return err
		}
		if err := atomicfile.Rename(m.from, m.to); err != nil && (m.from != f.target || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := f.change("remove .old"); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// sync brings files and folders to disk, innermost first.
func (f *aside) sync() error {
	err := filepath.WalkDir(f.temp(), func(path string, d fs.DirEntry, err error) error {
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
	return filepath.WalkDir(f.temp(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = atomicfile.SyncDir(path)
		}
		return err
	})
}

// discard removes what was written, after an error.
func (f *aside) discard() { _ = os.RemoveAll(f.temp()) }

// removeFolder removes a folder so that a process that dies leaves no half of it under
// its name.
func removeFolder(dir string) error {
	gone := beside(dir, ".gone")
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := atomicfile.Rename(dir, gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}
