package loader

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// A staging writes files of a folder under temporary names and then gives them their
// own: a reader finds the old files or the new ones, whole.
type staging struct {
	dir   string
	names []string
}

// tempName is hidden, so that nobody takes it for a checkpoint, and always the same, so
// that what a killed process left is overwritten by the next.
func tempName(name string) string { return "." + name + ".tmp" }

// write fills the file called name and syncs it to disk. A write that fails, as on a
// full disk, leaves no file.
func (s *staging) write(name string, fill func(io.Writer) error) error {
	path := filepath.Join(s.dir, name)
	temp := filepath.Join(s.dir, tempName(name))
	f, err := os.Create(temp)
	if err != nil {
		return &Error{File: path, Reason: "cannot be written", Err: unpath(err)}
	}
	s.names = append(s.names, name)
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{File: path, Reason: "cannot be written", Err: unpath(err)}
}

// commit gives every file its name, in the order of writing.
func (s *staging) commit() error {
	for len(s.names) > 0 {
		name := s.names[0]
		path := filepath.Join(s.dir, name)
		if err := os.Rename(filepath.Join(s.dir, tempName(name)), path); err != nil {
			return &Error{File: path, Reason: "cannot take its place", Err: err}
		}
		s.names = s.names[1:]
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return &Error{File: s.dir, Reason: "cannot be synced", Err: unpath(err)}
	}
	defer d.Close()
	_ = d.Sync() // not every file system syncs folders; the files themselves are synced
	return nil
}

// discard removes what was written and not committed.
func (s *staging) discard() {
	for _, name := range s.names {
		os.Remove(filepath.Join(s.dir, tempName(name)))
	}
	s.names = nil
}
