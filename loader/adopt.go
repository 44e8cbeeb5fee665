package loader

import (
	"bytes"
	"io"
	"io/fs"
	"os"

	"github.com/heftai/heft/internal/hostmem"
)

// adopt makes f refer to the file that has its name now, if that has the same bytes: the
// checkpoint was written again and renamed. It compares the bytes with those of the file that was
// opened, which f.reader still maps. It returns false if they differ or cannot be compared, and
// if bytes of f are used in place, because these belong to the old file.
func (f *File) adopt(info fs.FileInfo) bool {
	c := &f.contents
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case os.SameFile(info, f.identity().info):
		return true // another goroutine has compared it
	case !f.held.Load() || f.mapping.Load() != nil || !info.Mode().IsRegular() || info.Size() != f.Size || c.written():
		return false
	}
	writes, err := hostmem.WatchWrites(f.Path) // before the stamp is taken
	if err != nil {
		return false
	}
	id, file, same := f.compareWith()
	if written, _ := writes.Changes(); !same || written {
		writes.Close()
		if file != nil {
			_ = file.Close() // opened for reading
		}
		return false
	}
	f.watching.Lock()
	if f.watched != nil {
		_ = f.watched.Close() // nothing was read of it
	}
	f.watched = file
	f.watching.Unlock()
	if c.file != nil { // its hash is that of the new file
		_ = c.file.Close() // opened for reading
		c.file = nil
		if again, err := os.Open(f.Path); err == nil {
			c.file = again
		}
	}
	c.writes.Swap(writes).Close()
	c.accepted.Store(nil)
	c.unhashed.Store(false)
	f.id.Store(id)
	c.epoch.Add(1)
	return true
}

// compareWith reports whether the file that has f's name now has the bytes that f.reader maps. It
// returns that file with its identity.
func (f *File) compareWith() (id *identity, file *os.File, same bool) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, nil, false
	}
	info, err := file.Stat()
	if err != nil || info.Size() != f.Size {
		return nil, file, false
	}
	stamp, err := hostmem.StampOf(file)
	if err != nil {
		return nil, file, false
	}
	ours, theirs := make([]byte, hashed), make([]byte, hashed)
	for off := int64(0); off < f.Size; off += hashed {
		n := min(hashed, f.Size-off)
		lost := hostmem.Guard(func() { _, err = f.reader.ReadAt(ours[:n], off) })
		if _, fault := hostmem.FaultAddress(lost); lost != nil && !fault {
			panic(lost)
		}
		if lost != nil || err != nil {
			return nil, file, false
		}
		if _, err := io.ReadFull(io.NewSectionReader(file, off, n), theirs[:n]); err != nil || !bytes.Equal(ours[:n], theirs[:n]) {
			return nil, file, false
		}
	}
	after, err := hostmem.StampOf(file)
	return &identity{info, stamp}, file, err == nil && after == stamp
}
