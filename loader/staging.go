package loader

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

// A staging writes files of a folder under temporary names and then renames them, so that a
// reader finds either the old or the new files, complete. Its errors are *Error.
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

// write writes and syncs the file called name, and returns its temporary name. If the write
// fails, for example on a full disk, it removes the file.
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

// commit renames the files, in the order in which they were written.
func (s *staging) commit() error {
	err := s.batch.Commit()
	if err == nil {
		atomicfile.RemoveStale(s.dir) // includes the index of an interrupted save
		return nil
	}
	file := s.dir
	if left := s.batch.Names(); len(left) > 0 {
		file = filepath.Join(s.dir, left[0])
	}
	return &Error{File: file, Reason: "cannot be renamed into place", Err: unpath(err)}
}

// discard removes the files that were written and not committed.
func (s *staging) discard() { s.batch.Discard() }
