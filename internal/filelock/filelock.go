// Package filelock locks files between processes. The operating system releases a lock when its
// file is closed or its process ends, in whatever way: a killed process leaves no lock behind.
//
// Locks are advisory on Unix (flock) and belong to the open file: two opens of one file in the
// same process exclude each other, too. All functions are safe for concurrent use.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ErrLocked says that another open file holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// Try locks f until it is closed, or fails at once. The error is [ErrLocked] if another open file
// holds the lock, and errors.ErrUnsupported if the system or the file system has no locks. On
// Windows the lock leaves the file's contents readable for others.
func Try(f *os.File) error { return try(f, false) }

// TryFirstByte is [Try] for files that Python's filelock package locks as well. On Windows it
// locks the first byte, as that package does, and others cannot read it.
func TryFirstByte(f *os.File) error { return try(f, true) }

// Open opens the file at path, creates it if it does not exist, and locks it with try. If the
// previous holder removed the file in the meantime, Open returns [ErrLocked]: call it again.
func Open(path string, try func(*os.File) error) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, err
	}
	err = try(f)
	if err == nil && !IsAt(f, path) {
		err = ErrLocked
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// IsAt reports whether path still names the open file f. A lock whose file was removed keeps no other process out.
func IsAt(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// A HeldError says which process holds the lock file at Path.
type HeldError struct {
	Path string
	// PID is the process that holds the lock, or 0 if the file does not say.
	PID int
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("filelock: another process holds the lock %s", e.Path)
	}
	return fmt.Sprintf("filelock: process %d holds the lock %s", e.PID, e.Path)
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *HeldError) Is(target error) bool { return target == ErrLocked }

// A Lock is a lock file that this process holds.
type Lock struct{ file *os.File }

// Acquire locks the file at path, or fails at once, and writes this process's ID into it. The
// error is a [*HeldError] if another process holds it, and errors.ErrUnsupported if the file
// system has no locks. A file that a killed process left is taken over.
func Acquire(path string) (*Lock, error) {
	f, err := Open(path, Try)
	if errors.Is(err, ErrLocked) {
		return nil, &HeldError{Path: path, PID: readPID(path)}
	}
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Lock{f}, nil
}

// readPID reads the process ID that a lock file holds, or 0.
func readPID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// Release removes the lock file and releases the lock.
func (l *Lock) Release() error {
	removed := os.Remove(l.file.Name()) // while it is locked: afterwards it may be another's
	err := l.file.Close()
	if removed != nil { // Windows removes no open file
		_ = os.Remove(l.file.Name()) // fails if another process has it already
	}
	return err
}
