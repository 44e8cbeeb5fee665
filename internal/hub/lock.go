package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/heftai/heft/internal/filelock"
)

// lockPoll is the interval for trying a lock that another process holds.
const lockPoll = 100 * time.Millisecond

// lock takes the lock file at path. It waits while another process or goroutine holds it. The
// Python package huggingface_hub uses the same file in the same way, so it is excluded too.
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

// tryLock takes the lock or fails at once. On a file system without locks it succeeds: two
// processes then download the same bytes to the same places.
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
