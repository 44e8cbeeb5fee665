package loader

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

// A staging writes files of a folder under temporary names and then gives them their own: a
// reader finds the old files or the new ones, whole. Its errors are *Error.
type staging struct {
	dir   string
	batch *atomicfile.Batch
}

func newStaging(dir string) (*staging, error) {
	batch, err := atomicfile.NewBatch(dir, isStagedIndex)
	if err != nil {
		return nil, &Error{File: dir, Reason: "cannot be written", Err: unpath(err)}
	}
	return &staging{dir, batch}, nil
}

// write fills the file called name and syncs it to disk. It returns the file's temporary name. A
// write that fails, as on a full disk, leaves no file.
func (s *staging) write(name string, fill func(io.Writer) error) (temp string, err error) {
	temp, err = s.batch.Write(name, fill)
	if err == nil {
		return temp, nil
	}
	var e *Error
	if errors.As(err, &e) {
		return "", err
	}
	return "", &Error{File: filepath.Join(s.dir, name), Reason: "cannot be written", Err: unpath(err)}
}

// commit gives every file its name, in the order of writing.
func (s *staging) commit() error {
	err := s.batch.Commit()
	if err == nil {
		atomicfile.RemoveStale(s.dir) // the index of an interrupted save, too
		return nil
	}
	file := s.dir
	if left := s.batch.Names(); len(left) > 0 {
		file = filepath.Join(s.dir, left[0])
	}
	return &Error{File: file, Reason: "cannot be renamed into place", Err: unpath(err)}
}

// discard removes what was written and not committed.
func (s *staging) discard() { s.batch.Discard() }
