// Package smallfile reads configuration files whole, and only such files: config.json,
// tokenizer.json, an adapter's config, an index.
//
// It opens regular files only, so that a named pipe does not block and a device does not fill
// memory, and it reads at most a limit that the caller states.
package smallfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Limits of the files that several packages read.
const (
	Config    = 16 << 20  // the longest published configs, with label maps, have some 100 KB
	Tokenizer = 256 << 20 // the longest published tokenizer.json has some 35 MB
	State     = 1 << 30   // of a training run, without its tensors: its log grows with its steps
)

// ErrNotRegular is the reason why a folder, a device or a pipe is not read.
var ErrNotRegular = errors.New("not a regular file")

// ErrPointer is the reason why a pointer of Git LFS is not read: the file itself was not fetched.
var ErrPointer = errors.New("got a Git LFS pointer, want the file: fetch it, for example with `git lfs pull`")

// pointer is how the pointers of Git LFS begin.
const pointer = "version https://git-lfs.github.com/spec/"

// A TooLargeError says that a file is longer than the limit.
type TooLargeError struct{ Limit int64 }

// Error states the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the file is larger than the %d bytes allowed", e.Limit)
}

// Read returns the contents of the regular file at path. It fails with a *fs.PathError that
// wraps [ErrNotRegular], [ErrPointer], a [*TooLargeError] or the system's error. A path below
// something that is no folder, such as /dev/null, does not exist.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // before opening: a pipe would block
	if errors.Is(err, syscall.ENOTDIR) {
		err = &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return readAll(f, path, limit)
}

// OpenRoot opens the folder at path. It fails with a *fs.PathError that wraps [syscall.ENOTDIR] for
// anything else; [os.OpenRoot] blocks on a named pipe.
func OpenRoot(path string) (*os.Root, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// ReadFS is Read for a file of fsys.
func ReadFS(fsys fs.FS, name string, limit int64) ([]byte, error) {
	if fsys == nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("got a nil file system")}
	}
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if err := check(info, limit); err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, name, limit)
}

func check(info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return ErrNotRegular
	case info.Size() > limit:
		return &TooLargeError{limit}
	}
	return nil
}

// readAll reads f to its end, at most limit bytes, and closes it. The file may have been
// replaced or have grown since it was checked.
func readAll(f fs.File, name string, limit int64) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = check(info, limit)
	}
	var b []byte
	if err == nil {
		b = make([]byte, 0, info.Size()+512)
		b, err = appendAll(b, io.LimitReader(f, limit+1))
	}
	if err == nil && int64(len(b)) > limit {
		err = &TooLargeError{limit}
	}
	if err == nil && bytes.HasPrefix(b, []byte(pointer)) {
		err = ErrPointer
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return b, nil
}

// appendAll reads r to its end. It grows b only when the file has grown.
func appendAll(b []byte, r io.Reader) ([]byte, error) {
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
