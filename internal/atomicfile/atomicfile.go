// Package atomicfile replaces files atomically: a reader, a crash or a power failure finds the old
// contents of a path or the new ones, whole. It is the only place in Heft that does so.
//
// A new file is written under a temporary name in the folder of its path, synced to disk, renamed,
// and the folder is synced. Temporary names begin with [TempPrefix] and end with the final name.
// Their writers lock them, so that [RemoveStale] can tell a file of a killed process from one that
// is being written.
//
// Functions and different Files are safe for concurrent use, also on the same path: the last
// rename wins. One File or [Batch] belongs to one goroutine.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/heftai/heft/internal/filelock"
)

// TempPrefix begins the name of every temporary file.
const TempPrefix = ".heft-tmp-"

// A File is a temporary file that takes the place of its path when it is committed.
type File struct {
	*os.File
	path   string // its final place
	closed bool
	done   bool // renamed or removed
}

// Create opens a temporary file that [File.Commit] puts at path. It removes what killed writers
// of the same path left. The folder must exist. The file has the permissions of the file that it
// replaces, else 0666 before umask.
func Create(path string) (*File, error) {
	path = filepath.Clean(path)
	removeStaleOf(path)
	for {
		f, err := create(path, tempName(path))
		if err != nil {
			return nil, err
		}
		if f.claim() {
			return f, nil
		}
		_ = f.close() // RemoveStale was faster
	}
}

func create(path, temp string) (*File, error) {
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, withPath(err, path)
	}
	if old, err := os.Lstat(path); err == nil && old.Mode().IsRegular() {
		_ = f.Chmod(old.Mode().Perm()) // not every file system has permissions
	}
	return &File{File: f, path: path}, nil
}

// withPath is an error about a temporary file with the path that it is for.
func withPath(err error, path string) error {
	var of *os.PathError
	if !errors.As(err, &of) {
		return err
	}
	return &os.PathError{Op: of.Op, Path: path, Err: of.Err}
}

// claim locks a new temporary file. It reports whether the file still has its name.
func (f *File) claim() bool {
	if errors.Is(tryLock(f.File), filelock.ErrLocked) {
		return false
	}
	_, err := os.Lstat(f.Name())
	return err == nil // without locks its age protects it
}

// TempName returns a new temporary name in the folder of path, for what is not a regular file, such
// as a symbolic link, and removes old links that killed writers of the same path left.
func TempName(path string) string {
	removeStaleOf(path)
	return tempName(path)
}

func tempName(path string) string {
	return filepath.Join(filepath.Dir(path), newID()+tail(path))
}

// newID begins the names of temporary files that belong together.
func newID() string { return fmt.Sprintf("%s%016x", TempPrefix, rand.Uint64()) }

// idOf returns that part of a temporary name.
func idOf(name string) string { return name[:min(len(name), len(TempPrefix)+16)] }

// tail ends the temporary names of path. It keeps the suffix of long names, which tells what the
// file is.
func tail(path string) string {
	const longest = 200 // of the 255 bytes that file systems take
	name := filepath.Base(path)
	name = name[max(0, len(name)-longest):]
	for len(name) > 0 && !utf8.RuneStart(name[0]) {
		name = name[1:]
	}
	return "-" + name
}

// IsTemp reports whether a file of that name is a temporary file of this package.
func IsTemp(name string) bool { return strings.HasPrefix(filepath.Base(name), TempPrefix) }

// Commit syncs the file to disk, gives it its final name, syncs the folder and closes the file. A
// symbolic link at the path is replaced, its target stays. If Commit fails before the rename the
// old file is untouched and the temporary one is removed.
func (f *File) Commit() error {
	if err := f.Sync(); err != nil {
		f.Discard()
		return err
	}
	if err := f.rename(); err != nil {
		f.Discard()
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

// rename closes the file and gives it its final name. Where open files can be renamed it is
// locked until it has its name.
func (f *File) rename() error {
	if closeBeforeRename {
		if err := f.close(); err != nil {
			return err
		}
	}
	if err := rename(f.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	return f.close()
}

func (f *File) close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	return f.Close()
}

// Discard closes and removes the temporary file. After Commit it does nothing, so that it can be
// deferred.
func (f *File) Discard() {
	if f.done {
		return
	}
	f.done = true
	if closeBeforeRename {
		_ = f.close() // its contents are not wanted
	}
	_ = os.Remove(f.Name()) // or RemoveStale does later
	_ = f.close()
}

// Leave closes the file and keeps it under its temporary name, for [Resume] to continue. It removes
// nothing and syncs nothing. The next [Create] or [RemoveStale] removes a file that is not resumed.
func (f *File) Leave() {
	if f.done {
		return
	}
	f.done = true
	_ = f.close() // the caller of Resume checks the contents
}

// WriteFile replaces the contents of the file at path. The folder must exist.
func WriteFile(path string, b []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// Write replaces the contents of the file at path by what fill writes. If fill fails, so does
// Write, with that error, and the old file stays. The folder must exist.
func Write(path string, fill func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := fill(f); err != nil {
		return err
	}
	return f.Commit()
}

// Rename gives a complete and synced file or folder another name on the same file system and
// syncs the folder of that name. It replaces a file that exists.
func Rename(from, to string) error {
	if err := rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// tryLock is replaced by tests.
var tryLock = filelock.Try
