package kvstore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/heftai/heft/internal/filelock"
)

const (
	// lockWait is how long a writer waits for other processes before it drops a value.
	lockWait  = 2 * time.Second
	lockPause = 2 * time.Millisecond
	// together is the most values that a process writes before it lets others write.
	together = 64
)

// run writes what is offered.
func (s *Store) run() {
	defer close(s.ended)
	if lock, err := s.lock(); err == nil {
		if _, err := s.evict(lock, 0); err != nil {
			s.warnOnce("the KV store cannot be read", err)
		}
		_ = lock.Close() // the size is written
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case o := <-s.queue:
			s.batch(o)
		}
	}
}

// batch writes an offer and others that wait, under one lock.
func (s *Store) batch(o offer) {
	var lock *os.File
	defer func() {
		if lock != nil {
			_ = lock.Close() // the size is written
		}
	}()
	for n := 0; ; n++ {
		switch {
		case o.done != nil:
			if lock != nil {
				_ = lock.Close() // whoever waits may open another store at once
				lock = nil
			}
			close(o.done)
		case s.exists(o.key):
			s.use(s.path(o.key), o.depth)
		default:
			if lock == nil {
				lock, _ = s.lock() // the error is reported
			}
			if lock == nil || !s.write(lock, o) {
				s.dropped.Add(1)
			}
		}
		if n == together {
			return
		}
		select {
		case o = <-s.queue:
		default:
			return
		}
	}
}

// exists reports whether the file of a key is a regular one.
func (s *Store) exists(key Key) bool {
	info, err := os.Lstat(s.path(key))
	return err == nil && info.Mode().IsRegular()
}

// lock locks the folder for writing and evicting. It waits for other processes for a while.
func (s *Store) lock() (*os.File, error) {
	path := filepath.Join(s.dir, lockName)
	var err error
	for waited := time.Duration(0); waited < lockWait; waited += lockPause {
		var f *os.File
		if f, err = openLock(path); errors.Is(err, fs.ErrNotExist) {
			f, err = s.restore(path)
		}
		if err == nil {
			s.blocked.Store(false)
			return f, nil
		}
		if !errors.Is(err, filelock.ErrLocked) {
			s.blocked.Store(true)
			s.warnOnce("nothing is written to the KV store, because its folder cannot be locked", err)
			return nil, err
		}
		select {
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		case <-time.After(lockPause):
		}
	}
	return nil, err
}

// restore makes the folder again after it was removed while this process uses it, and locks it.
func (s *Store) restore(lockPath string) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := openLock(lockPath)
	if err != nil {
		return nil, err
	}
	if _, missing := os.Lstat(filepath.Join(s.dir, secretName)); errors.Is(missing, fs.ErrNotExist) {
		_ = s.writeSecret() // without it the values end with this process
	}
	return f, nil
}

// openLock opens the lock file, which must be a regular one, and locks it or fails at once.
func openLock(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "lock", Path: path, Err: errNotRegular}
	}
	f, err := filelock.Open(path, filelock.Try)
	if err == nil && checksModes {
		err = f.Chmod(0o600)
		if err != nil {
			_ = f.Close() // nothing was written
		}
	}
	return f, err
}

var errNotRegular = errors.New("not a regular file")

// usageDigits is the length of the number in the lock file: the size of all values.
const usageDigits = 20

// readUsage returns the size of all values in the folder as the last writer left it.
func (s *Store) readUsage() (int64, bool) {
	f, err := openRegular(filepath.Join(s.dir, lockName))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	return usageOf(f)
}

func usageOf(f *os.File) (int64, bool) {
	var b [usageDigits]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) && err != io.EOF || n < len(b) {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimLeft(string(b[:]), "0"), 10, 64)
	if err != nil && string(b[:]) != strings.Repeat("0", usageDigits) {
		return 0, false
	}
	return n, n >= 0
}

func (s *Store) setUsage(lock *os.File, n int64) error {
	text := strconv.FormatInt(n, 10)
	_, err := lock.WriteAt([]byte(strings.Repeat("0", usageDigits-len(text))+text), 0)
	s.bytes.Store(n)
	return err
}

// write writes the value of an offer. It reports false if it does not.
func (s *Store) write(lock *os.File, o offer) bool {
	s.busy.Lock()
	defer s.busy.Unlock()
	value, ok := o.from.Value(o.key)
	if !ok {
		return false
	}
	size := sizeOf(int64(len(value)))
	if size > s.options.Limit {
		return false
	}
	used, ok := usageOf(lock)
	if !ok || used+size > s.options.Limit {
		var err error
		if used, err = s.evict(lock, size); err != nil || used+size > s.options.Limit {
			if err != nil {
				s.warnOnce("the KV store cannot evict", err)
			}
			return false
		}
	}
	err := s.setUsage(lock, used+size) // first: a process that is killed leaves it too large, never too small
	s.options.step("counted")
	if err == nil {
		err = s.put(o.key, o.depth, value)
	}
	if err != nil {
		_ = s.setUsage(lock, used) // else the next eviction counts again
		s.warnOnce("a value of the KV store cannot be written", err)
		return false
	}
	s.options.step("published")
	s.written.Add(1)
	s.writtenBytes.Add(int64(len(value)))
	return true
}
