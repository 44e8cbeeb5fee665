package hostmem

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unsafe"
)

// directAlign is an alignment of offsets, lengths and addresses that all block devices and file systems
// accept.
const directAlign = 4096

// DirectRead and DirectWrite read or write a range of a file past the page cache, as pread and pwrite
// do. A test that wants a disk that fails replaces them before it opens files.
var DirectRead, DirectWrite = readDirect, writeDirect

// A DirectFile reads ranges of a file from the device into aligned buffers, without the page cache. If
// the file system does not support that, it reads through the cache and evicts the pages.
//
// Many goroutines may call ReadAt, each with its own buffer.
type DirectFile struct {
	path     string
	size     int64
	direct   *os.File // nil if opening it failed
	buffered *os.File
	refused  atomic.Bool                                          // direct reads are not supported
	read     func(f *os.File, buf []byte, off int64) (int, error) // DirectRead, except in tests of this package
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
	f := &DirectFile{path: path, size: info.Size(), buffered: buffered, read: DirectRead}
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

// Size returns the size of the file when it was opened.
func (f *DirectFile) Size() int64 { return f.size }

// Path returns the path of the file.
func (f *DirectFile) Path() string { return f.path }

// Direct reports whether reads bypass the page cache.
func (f *DirectFile) Direct() bool { return !f.refused.Load() }

// WindowSize returns the size of the buffer for reading n bytes at off: the range widened to whole
// blocks of the device. That is at most n rounded up and one block more.
func WindowSize(off, n int64) int64 {
	begin := off &^ (directAlign - 1)
	return (off+n+directAlign-1)&^(directAlign-1) - begin
}

// ReadAt reads n bytes at off into buf and returns the part of buf that holds them. buf must begin on a
// 4096-byte boundary, as a [Block] does, and have at least WindowSize(off, n) bytes. If the file ends
// before off+n, the error wraps io.ErrUnexpectedEOF and has the path.
func (f *DirectFile) ReadAt(buf []byte, off, n int64) ([]byte, error) {
	need := WindowSize(off, n)
	address := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if off < 0 || n < 0 || int64(len(buf)) < need || address%directAlign != 0 {
		return nil, fmt.Errorf("hostmem: reading %s, bytes [%d, %d): got a buffer of %d bytes at %#x, want %d at a multiple of %d",
			f.path, off, off+n, len(buf), address, need, directAlign)
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
		return nil, fmt.Errorf("hostmem: reading %s: got the end of the file at byte %d, want bytes [%d, %d): %w",
			f.path, begin+got, off, off+n, io.ErrUnexpectedEOF)
	}
	return buf[head : head+n : head+n], nil
}

// fill reads from off until enough bytes of buf are filled or the file ends, and returns their number.
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
			break // the end of the file, or a short read of a network file system; the rest is not aligned
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

// Close closes the file. No goroutine may be reading.
func (f *DirectFile) Close() error {
	err := f.buffered.Close()
	if f.direct != nil {
		if e := f.direct.Close(); err == nil {
			err = e
		}
	}
	return err
}
