package batches

import (
	"os"
	"sync"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

const (
	// mostSpare is the size of the reserve, at most a sixteenth of the store. A description that
	// finds no room gets spareStep of it at a time.
	mostSpare, spareShare, spareStep = 64 << 10, 16, 4 << 10
	// retryAfter is the time after which states of batches whose write failed are written again.
	retryAfter = 30 * time.Second
)

// A reserve is a file that reserves disk space. If results of batches have filled the disk, the
// batches' last states are written to that space. It is safe for concurrent use.
type reserve struct {
	path string
	most int64
	lock *hold
	mu   sync.Mutex
	size int64 // of the file
}

// openReserve creates the file at path, as large as the disk has room for. limit is the store's.
func openReserve(path string, limit int64, lock *hold) *reserve {
	s := &reserve{path: path, lock: lock, most: min(mostSpare, limit/spareShare/spareStep*spareStep)}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		s.size = info.Size()
	}
	s.fill()
	return s
}

// fill grows the file to its full size if the disk has room.
func (s *reserve) fill() {
	if _, err := os.Lstat(s.path); err != nil {
		s.size = 0 // the folder was removed
	}
	if s.size >= s.most {
		return
	}
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return // the next description tries again
	}
	defer f.Close()
	for zeros := make([]byte, spareStep); s.size < s.most; s.size += spareStep {
		if _, err := f.WriteAt(zeros, s.size); err != nil {
			_ = f.Truncate(s.size) // if this fails, the file is larger than s.size says
			return
		}
	}
}

// describe writes a description. If the disk is full, it first frees a part of the reserve.
func (s *reserve) describe(path string, v any) error {
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
