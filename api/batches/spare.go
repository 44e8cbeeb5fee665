package batches

import (
	"os"
	"sync"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

const (
	// mostSpare is the size of the spare file, at most a sixteenth of the store. A description that finds no room gets
	// spareStep of it at a time.
	mostSpare, spareShare, spareStep = 64 << 10, 16, 4 << 10
	// retryAfter is how long after a failure the states of batches are written again.
	retryAfter = 30 * time.Second
)

// A spare is a file that takes room on the disk, so that the last states of batches can be written when the results of
// batches have filled the disk. It is safe for concurrent use.
type spare struct {
	path string
	most int64
	lock *hold
	mu   sync.Mutex
	size int64 // of the file
}

// openSpare makes the file at path as large as the disk has room for, for a store with a limit.
func openSpare(path string, limit int64, lock *hold) *spare {
	s := &spare{path: path, lock: lock, most: min(mostSpare, limit/spareShare/spareStep*spareStep)}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	s.fill()
	return s
}

// fill brings the file to its size if the disk has room.
func (s *spare) fill() {
	if _, err := os.Lstat(s.path); err != nil {
		s.size = 0 // the folder was removed
	}
	if s.size >= s.most {
		return
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return // there is none until the next description
	}
	defer f.Close()
	for zeros := make([]byte, spareStep); s.size < s.most; s.size += spareStep {
		if _, err := f.WriteAt(zeros, s.size); err != nil {
			_ = f.Truncate(s.size) // or it is larger than known
			return
		}
	}
}

// describe writes a description. If the disk is full, it frees some of the file for it.
func (s *spare) describe(path string, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.lock.describe(path, v)
	if err == nil {
		s.fill()
		return nil
	}
	for atomicfile.IsFull(err) && s.size > 0 {
		less := max(0, s.size-spareStep)
		if os.Truncate(s.path, less) != nil {
			return err
		}
		s.size = less
		err = s.lock.describe(path, v)
	}
	return err
}
