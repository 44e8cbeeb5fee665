package hostmem

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unsafe"
)

// directAlign is the boundary of offsets, lengths and addresses that every block
// device and file system takes.
const directAlign = 4096

// A DirectFile reads ranges of a file straight from the device into aligned buffers,
// leaving the page cache alone. Where the file system cannot do that it reads
// through the cache and lets the pages go.
//
// ReadAt may be called from many goroutines with buffers of their own.
type DirectFile struct {
	path     string
	size     int64
	direct   *os.File // nil where refused at open
	buffered *os.File
	refused  atomic.Bool
	read     func(f *os.File, buf []byte, off int64) (int, error) // readDirect, or a test's
}

// OpenDirect opens the regular file at path. The error is an *fs.PathError.
func OpenDirect(path string) (*DirectFile, error) {
	buffered, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := buffered.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: fmt.Errorf("not a regular file")}
	}
	if err != nil {
		buffered.Close()
		return nil, err
	}
	f := &DirectFile{path: path, size: info.Size(), buffered: buffered, read: readDirect}
	if f.direct, err = openDirect(path); err != nil {
		f.direct = nil
		f.refused.Store(true)
		if !refusesDirect(err) {
			buffered.Close()
			return nil, err
		}
	}
	return f, nil
}

// Size is the file's size when it was opened.
func (f *DirectFile) Size() int64 { return f.size }

// Path is the path that was opened.
func (f *DirectFile) Path() string { return f.path }

// Direct reports whether reads still go past the page cache.
func (f *DirectFile) Direct() bool { return !f.refused.Load() }

// WindowSize is the buffer that reading n bytes at off needs: the range widened to
// whole device blocks. It is at most n rounded up plus two blocks for any off.
func WindowSize(off, n int64) int64 {
	begin := off &^ (directAlign - 1)
	return (off+n+directAlign-1)&^(directAlign-1) - begin
}

// ReadAt reads n bytes at off into buf and returns the part of buf that holds them.
// buf must begin on a 4096-byte boundary, as blocks do, and hold WindowSize(off, n)
// bytes. A file that ends before off+n gives io.ErrUnexpectedEOF, wrapped with the path.
func (f *DirectFile) ReadAt(buf []byte, off, n int64) ([]byte, error) {
	need := WindowSize(off, n)
	address := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if off < 0 || n < 0 || int64(len(buf)) < need || address%directAlign != 0 {
		return nil, fmt.Errorf("hostmem: %s: buffer of %d bytes at %#x for [%d, %d), which takes %d aligned",
			f.path, len(buf), address, off, off+n, need)
	}
	if n == 0 {
		return buf[:0], nil
	}
	begin := off &^ (directAlign - 1)
	head := off - begin
	got, err := f.fill(buf[:need], begin, head+n)
	if err != nil {
		return nil, fmt.Errorf("hostmem: %w", &os.PathError{Op: "read", Path: f.path, Err: err})
	}
	if got < head+n {
		return nil, fmt.Errorf("hostmem: %s: ends at byte %d, wanted [%d, %d): %w",
			f.path, begin+got, off, off+n, io.ErrUnexpectedEOF)
	}
	return buf[head : head+n : head+n], nil
}

// fill reads from off until enough bytes of buf are filled or the file ends.
func (f *DirectFile) fill(buf []byte, off, enough int64) (int64, error) {
	var got int64
	for got < enough && !f.refused.Load() {
		n, err := f.read(f.direct, buf[got:], off+got)
		if err != nil && refusesDirect(err) {
			f.refused.Store(true)
			break
		}
		if err != nil {
			return got, err
		}
		got += int64(n)
		if n%directAlign != 0 || n == 0 {
			break // the file's end, or a read that a network cut short: what follows is not aligned
		}
	}
	if got >= enough {
		return got, nil
	}
	n, err := f.buffered.ReadAt(buf[got:enough], off+got)
	DropCache(f.buffered, off+got, int64(n))
	if err == io.EOF {
		err = nil
	}
	return got + int64(n), err
}

// Close closes the file. No read may be under way.
func (f *DirectFile) Close() error {
	err := f.buffered.Close()
	if f.direct != nil {
		if e := f.direct.Close(); err == nil {
			err = e
		}
	}
	return err
}
