package hostmem

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// Writes tells writing to a file from changing its attributes, such as its date, while the file is
// watched. It uses inotify, which does not see stores to shared mappings and writes by other
// machines, and takes a new date of modification without one of access for a write. A nil Writes saw a write. It is safe for concurrent use.
type Writes struct {
	wd      int32
	written bool // guarded by inotify.mu, as touched
	touched bool
}

// inotify is the process's one queue of events; it exists while a file is watched.
var inotify struct {
	mu      sync.Mutex
	fd      int
	watches map[int32][]*Writes // by descriptor: an inode has one
}

const watchedEvents = unix.IN_MODIFY | unix.IN_ATTRIB

// WatchWrites begins to watch the file at path. It fails if the system has no watches left.
func WatchWrites(path string) (*Writes, error) {
	q := &inotify
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.watches) == 0 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil, err
		}
		q.fd, q.watches = fd, map[int32][]*Writes{}
	}
	wd, err := unix.InotifyAddWatch(q.fd, path, watchedEvents)
	if err != nil {
		if len(q.watches) == 0 {
			_ = unix.Close(q.fd) // nothing was read
		}
		return nil, err
	}
	drainEvents() // of earlier watches of the same file
	w := &Writes{wd: int32(wd)}
	q.watches[w.wd] = append(q.watches[w.wd], w)
	return w, nil
}

// Changes reports whether the file was written to since the watch began, and whether its attributes
// were changed since the last call. It does not block.
func (w *Writes) Changes() (written, touched bool) {
	if w == nil {
		return true, false
	}
	inotify.mu.Lock()
	defer inotify.mu.Unlock()
	if w.wd >= 0 {
		drainEvents()
	}
	touched, w.touched = w.touched, false
	return w.written, touched
}

// drainEvents reads what has happened. inotify.mu is held.
func drainEvents() {
	var buf [4096]byte
	for {
		n, err := unix.Read(inotify.fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
			if mask&unix.IN_Q_OVERFLOW != 0 { // events are lost
				for _, list := range inotify.watches {
					markChanged(list, unix.IN_MODIFY)
				}
			}
			markChanged(inotify.watches[wd], mask)
		}
	}
}

func markChanged(list []*Writes, mask uint32) {
	for _, w := range list {
		w.written = w.written || mask&(unix.IN_MODIFY|unix.IN_IGNORED) != 0
		w.touched = w.touched || mask&unix.IN_ATTRIB != 0
	}
}

// Close ends the watch. Writes that were seen before stay known.
func (w *Writes) Close() {
	if w == nil {
		return
	}
	q := &inotify
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.wd < 0 {
		return
	}
	drainEvents()
	rest := q.watches[w.wd]
	for i, other := range rest {
		if other == w {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if q.watches[w.wd] = rest; len(rest) == 0 {
		delete(q.watches, w.wd)
		_, _ = unix.InotifyRmWatch(q.fd, uint32(w.wd)) // or the file is gone
	}
	if len(q.watches) == 0 {
		_ = unix.Close(q.fd) // nothing is read any more
	}
	w.wd = -1
}
