package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// lockPoll is how often a lock that another process holds is asked for.
const lockPoll = 100 * time.Millisecond

// errLocked is why a lock is not taken now.
var errLocked = errors.New("another process holds the lock")

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
		if !errors.Is(err, errLocked) {
			return nil, disk("locking", err)
		}
		if err := sleep(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// tryLock takes the lock now or not at all.
func tryLock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	// Who held it may have removed the file meanwhile: then ours is another's no more.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(held, there) {
			err = errLocked
		} else if errors.Is(err, os.ErrNotExist) {
			err = errLocked
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil // closing lets go of it
}
