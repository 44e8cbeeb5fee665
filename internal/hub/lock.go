package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/heftai/heft/internal/filelock"
)

// lockPoll is how often a lock that another process holds is asked for.
const lockPoll = 100 * time.Millisecond

// lock takes the lock file at path, waiting while another process or goroutine has it.
// It excludes the Python package as well, which locks the same file the same way.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, disk("making the folder of locks", err)
	}
	for {
		unlock, err := tryLock(path)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, disk("locking", err)
		}
		if err := sleep(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// tryLock takes the lock now or not at all. A file system that has no locks is used without: two
// processes then fetch the same bytes to the same places.
func tryLock(path string) (unlock func(), err error) {
	f, err := filelock.Open(path, func(f *os.File) error {
		err := filelock.TryFirstByte(f)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil // closing releases it
}
