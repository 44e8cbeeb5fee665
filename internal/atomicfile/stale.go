package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heftai/heft/internal/filelock"
)

const (
	// withoutLocks is the age at which a temporary file is stale if locks cannot tell.
	withoutLocks = time.Hour
	// unlockedGap is the same where a writer unlocks its file just before renaming it.
	unlockedGap = time.Minute
)

// RemoveStale removes from dir the temporary files whose writers were killed. It leaves those that
// another process or goroutine is writing. Errors are left to the next call.
func RemoveStale(dir string) { removeStale(dir, func(string) bool { return true }) }

// removeStaleOf does so for the files that were to take the place of path.
func removeStaleOf(path string) {
	removeStale(filepath.Dir(path), func(name string) bool { return strings.HasSuffix(name, tail(path)) })
}

// Resume returns a temporary file for path whose writer was killed, locked, for the caller to
// complete and commit; nil if there is none. The contents are what reached the file: the caller
// checks them.
func Resume(path string) *File {
	path = filepath.Clean(path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !IsTemp(e.Name()) || !strings.HasSuffix(e.Name(), tail(path)) {
			continue
		}
		held, stale := takeStale(filepath.Join(filepath.Dir(path), e.Name()))
		if stale && held != nil {
			return &File{File: held, path: path}
		}
		if held != nil {
			_ = held.Close() // nothing was written
		}
	}
	return nil
}

// removeStale does so for the files that match.
func removeStale(dir string, match func(name string) bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type group struct{ all, matched []string }
	groups := map[string]*group{}
	for _, e := range entries {
		if !IsTemp(e.Name()) {
			continue
		}
		g := groups[idOf(e.Name())]
		if g == nil {
			g = new(group)
			groups[idOf(e.Name())] = g
		}
		path := filepath.Join(dir, e.Name())
		g.all = append(g.all, path)
		if match(e.Name()) {
			g.matched = append(g.matched, path)
		}
	}
	for _, g := range groups {
		if len(g.matched) > 0 {
			removeGroup(g.all, g.matched)
		}
	}
}

// removeGroup removes the matched files of one writer if it holds none of all its files.
func removeGroup(all, matched []string) {
	var locks []*os.File
	unlock := func() {
		for _, f := range locks {
			_ = f.Close() // nothing was written
		}
		locks = nil
	}
	defer unlock()
	for _, path := range all {
		f, stale := takeStale(path)
		if f != nil {
			locks = append(locks, f)
		}
		if !stale {
			return
		}
	}
	if closeBeforeRename {
		unlock()
	}
	for _, path := range matched {
		_ = os.Remove(path) // while it is locked
	}
}

// takeStale reports whether no writer holds the temporary file at path, and locks it.
func takeStale(path string) (held *os.File, stale bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Is(err, os.ErrNotExist)
	}
	age := time.Since(info.ModTime())
	if !info.Mode().IsRegular() {
		return nil, age > withoutLocks
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, false
	}
	switch err := tryLock(f); {
	case err == nil:
		return f, !closeBeforeRename || age > unlockedGap
	case errors.Is(err, filelock.ErrLocked):
		return f, false
	}
	return f, age > withoutLocks
}
