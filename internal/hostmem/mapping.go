package hostmem

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// Advice tells the system how a range of a mapping will be used.
type Advice uint8

const (
	// WillNeed starts reading the range in the background.
	WillNeed Advice = iota
	// DontNeed frees the range's pages; touching them reads them again.
	DontNeed
	// Random turns read-ahead off: touching a page reads that page.
	Random
	// Sequential turns read-ahead on again, and makes it large.
	Sequential
	// Populate reads the range and maps its pages before it returns. The system may be too old
	// for it, and the file too short: its error says so.
	Populate
)

// A Mapping is a file mapped read-only. Its bytes are those of the page cache. No ledger counts them,
// because the system holds touched pages only.
//
// If the file is cut short after it was mapped, reading a byte behind its new end is a fault. In a
// goroutine that called debug.SetPanicOnFault(true) that is a panic, as [Guard] does. In others it ends
// the process.
type Mapping struct {
	file     *os.File
	fd       int
	data     []byte
	released atomic.Bool
}

// Map maps the regular file at path as a whole. The caller owns the mapping. The error is an
// *fs.PathError. It wraps errors.ErrUnsupported on systems without mmap.
func Map(path string) (*Mapping, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := mapOpen(f, path)
	if err != nil {
		_ = f.Close() // the error tells more
		return nil, err
	}
	return m, nil
}

func mapOpen(f *os.File, path string) (*Mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "map", Path: path, Err: fmt.Errorf("not a regular file")}
	}
	m := &Mapping{file: f, fd: int(f.Fd())}
	size := info.Size()
	if size == 0 {
		return m, nil
	}
	if size != int64(int(size)) {
		return nil, &os.PathError{Op: "map", Path: path, Err: fmt.Errorf("%d bytes are more than addresses", size)}
	}
	if m.data, err = mapFile(f, int(size)); err != nil {
		return nil, &os.PathError{Op: "map", Path: path, Err: limited(err)}
	}
	return m, nil
}

// Bytes returns the file's bytes, which are valid until the release. Writing to them is a fault.
func (m *Mapping) Bytes() []byte { return m.data }

// Advise tells the system how n bytes at off will be used. DontNeed affects whole pages within the
// range, other advice all pages that the range touches. It is a hint. It fails if the range is outside
// the mapping or the system does not support the advice.
func (m *Mapping) Advise(off, n int64, a Advice) error {
	if err := m.within(off, n); err != nil {
		return err
	}
	size := int64(len(m.data))
	begin, end := off, off+n
	page := int64(os.Getpagesize())
	if a == DontNeed {
		begin = (begin + page - 1) &^ (page - 1)
		if end < size {
			end &^= page - 1
		}
	} else {
		begin &^= page - 1
	}
	if begin >= end {
		return nil
	}
	return advise(m.data[begin:end], a)
}

// within fails if n bytes at off are not all in the mapping.
func (m *Mapping) within(off, n int64) error {
	if size := int64(len(m.data)); off < 0 || n < 0 || off > size || n > size-off {
		return fmt.Errorf("hostmem: got bytes [%d, %d), want some within %d", off, off+n, size)
	}
	return nil
}

// A Stamp identifies the contents of a file without reading it: by its device, inode, size and time of
// modification. Equal stamps mean equal contents, as far as the system tells.
type Stamp struct {
	device, inode uint64
	size, changed int64
}

// String returns all of the stamp. Strings of equal stamps are equal.
func (s Stamp) String() string {
	return fmt.Sprintf("%d:%d:%d:%d", s.device, s.inode, s.size, s.changed)
}

// Size returns the size of the file.
func (s Stamp) Size() int64 { return s.size }

// SameFile reports whether s and t are stamps of one file, where the system tells.
func (s Stamp) SameFile(t Stamp) bool { return s.device == t.device && s.inode == t.inode }

// Device returns the number of the disk that holds the file.
func (s Stamp) Device() uint64 { return s.device }

// Stamp returns the present stamp of the mapped file. It allocates nothing. A changed stamp reveals
// changes that do not fault: a file that was overwritten, or cut short within its last page.
func (m *Mapping) Stamp() (Stamp, error) { return stampOf(m.fd) }

// StampOf returns the stamp of an open file. It allocates nothing.
func StampOf(f *os.File) (Stamp, error) { return stampOf(int(f.Fd())) }

// Release unmaps the file. A second release is ErrReleased and changes nothing.
func (m *Mapping) Release() error {
	if m.released.Swap(true) {
		return ErrReleased
	}
	data := m.data
	m.data = nil
	var err error
	if len(data) > 0 {
		err = unmap(data)
	}
	return errors.Join(err, m.file.Close())
}
