package kvstore

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

// page is a value's file.
type page struct {
	path string
	size int64
	used time.Time
}

// evict counts the values anew, and removes those that were used least recently if they and another
// value of size bytes exceed the limit, until nine tenths of the limit suffice. It also removes what
// killed writers left. It returns the size of all values. The lock is held.
func (s *Store) evict(lock *os.File, size int64) (int64, error) {
	pages, used, err := s.scan()
	if err != nil {
		return 0, err
	}
	if used+size > s.options.Limit {
		s.sort(pages)
		for low := s.options.Limit / 10 * lowWater; len(pages) > 0 && used+size > low; pages = pages[1:] {
			if err := os.Remove(pages[0].path); err != nil && !os.IsNotExist(err) {
				s.warnOnce("a value of the KV store cannot be removed", err)
				continue
			}
			used -= pages[0].size
			s.evicted.Add(1)
			s.options.step("evicted")
		}
	}
	return used, s.setUsage(lock, used)
}

// skew is how much the clocks of machines that share a store may differ.
const skew = time.Minute

// sort sorts pages by their use, the least recently used first. Times in the future are from before
// the clock was set back. Such pages come first, or they would stay for ever while new ones are
// evicted; one that is used again has a valid time.
func (s *Store) sort(pages []page) {
	now := s.options.now().Add(skew)
	slices.SortFunc(pages, func(a, b page) int {
		if late := a.used.After(now); late != b.used.After(now) {
			if late {
				return -1
			}
			return 1
		}
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path))
	})
}

// scan finds all values and removes temporary files, whose writers were killed, as the lock is held.
func (s *Store) scan() (pages []page, used int64, err error) {
	root := filepath.Join(s.dir, pagesDir)
	folders, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	foreign := 0
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(root, folder.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			continue
		case !folder.IsDir() || len(folder.Name()) != 2 || err != nil:
			foreign++
			continue
		}
		for _, e := range entries {
			path := filepath.Join(root, folder.Name(), e.Name())
			info, err := e.Info() // of the entry itself, also of a link
			switch {
			case err != nil: // removed meanwhile
			case info.Mode().IsRegular() && atomicfile.IsTemp(e.Name()):
				_ = os.Remove(path) // or the next scan does
			case info.Mode().IsRegular() && isPage(e.Name()):
				n := sizeOf(info.Size() - headerBytes)
				pages = append(pages, page{path, n, info.ModTime()})
				used += n
			default:
				foreign++
			}
		}
	}
	if foreign > 0 {
		if _, again := s.warned.LoadOrStore("foreign", true); !again {
			s.options.Warn("the folder of the KV store has other files, which are ignored", "folder", root, "count", foreign)
		}
	}
	return pages, used, nil
}
