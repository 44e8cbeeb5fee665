package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/exp/mmap"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/smallfile"
)

// A File is one safetensors file of a checkpoint, on disk or in memory.
type File struct {
	Name string // base name
	Path string // empty in memory
	Size int64  // in bytes, when it was opened

	folder string // in memory: the folder's name for messages
	data   []byte // in memory
	id     atomic.Pointer[identity]

	// reader reads bytes for headers and copies on every platform. mapping maps the file to use
	// bytes in place. Both use the same page cache. Each is created on first use.
	readOnce sync.Once
	reader   *mmap.ReaderAt
	readErr  error
	held     atomic.Bool // reader has opened the file that was first found by name
	mapOnce  sync.Once
	mapping  atomic.Pointer[hostmem.Mapping]
	mapErr   error

	closed   atomic.Bool
	watching sync.Mutex
	watched  *os.File // provides the stamp if nothing is mapped

	contents contents
}

// identity identifies the file that has the name, with its stamp.
type identity struct {
	info  fs.FileInfo
	stamp hostmem.Stamp
}

// unknown is the identity of files in memory.
var unknown identity

func (f *File) identity() *identity {
	if id := f.id.Load(); id != nil {
		return id
	}
	return &unknown
}

// openFile opens the regular file at path. It reads nothing.
func openFile(path, name string) (*File, error) {
	info, err := os.Stat(path) // before opening: a pipe would block
	if err != nil {
		return nil, &Error{File: path, Reason: "cannot be opened", Err: unpath(err)}
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{File: path, Reason: "cannot be opened", Err: smallfile.ErrNotRegular}
	}
	writes, _ := hostmem.WatchWrites(path) // before the stamp is taken; nil if not supported
	stamp, err := hostmem.StampAt(path)
	if err != nil {
		writes.Close()
		return nil, &Error{File: path, Reason: "cannot be opened", Err: unpath(err)}
	}
	f := &File{Name: name, Path: path, Size: info.Size()}
	f.id.Store(&identity{info, stamp})
	f.contents.writes.Store(writes)
	return f, nil
}

// inMemory reports whether the file has no path.
func (f *File) inMemory() bool { return f.Path == "" }

// open returns an error if the file was closed.
func (f *File) open() error {
	if f.closed.Load() {
		return &Error{File: f.label(), Reason: "the checkpoint was closed", Err: fs.ErrClosed}
	}
	return nil
}

// openReader opens the reader, once, and checks that it reads the file that was found by name.
func (f *File) openReader() error {
	f.readOnce.Do(func() {
		reader, err := mmap.Open(f.Path)
		if err != nil {
			f.readErr = &Error{File: f.Path, Reason: "cannot be opened", Err: unpath(err)}
			return
		}
		f.reader = reader
		if got := int64(reader.Len()); got != f.Size {
			f.readErr = f.changed(got)
			return
		}
		info, err := os.Stat(f.Path)
		f.held.Store(err == nil && os.SameFile(info, f.identity().info))
	})
	return f.readErr
}

// memoryFile returns data as a file of a checkpoint called folder.
func memoryFile(folder, name string, data []byte) *File {
	return &File{Name: name, Size: int64(len(data)), folder: folder, data: data}
}

// unpath returns the cause of a path error, because our messages already name the file.
func unpath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func (f *File) label() string {
	switch {
	case f.Path != "":
		return f.Path
	case f.folder != "":
		return f.folder + "/" + f.Name
	}
	return f.Name
}

// readAt copies bytes of the file. Without an error it fills p.
func (f *File) readAt(p []byte, off int64) (n int, err error) {
	if err := f.open(); err != nil {
		return 0, err
	}
	if off > f.Size || int64(len(p)) > f.Size-off {
		return 0, fmt.Errorf("bytes [%d, %d) of %d", off, off+int64(len(p)), f.Size)
	}
	if f.inMemory() {
		return copy(p, f.data[off:]), nil
	}
	if err := f.openReader(); err != nil {
		return 0, err
	}
	return f.readMapped(p, off)
}

// readMapped copies bytes of the reader's mapping. It returns an *Error for lost pages.
func (f *File) readMapped(p []byte, off int64) (n int, err error) {
	panicked := hostmem.Guard(func() { n, err = f.reader.ReadAt(p, off) })
	if panicked == nil {
		return n, err
	}
	if _, fault := hostmem.FaultAddress(panicked); !fault {
		panic(panicked)
	}
	if err := f.Verify(); err != nil {
		return 0, err
	}
	return 0, &Error{File: f.label(), Reason: "its device failed while reading"}
}

// A fileReader is a File as an io.ReaderAt for reading its header.
type fileReader struct{ *File }

func (r fileReader) ReadAt(p []byte, off int64) (int, error) { return r.readAt(p, off) }

// slice returns size bytes at off, in place if the platform supports it.
func (f *File) slice(off, size int64) ([]byte, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	if f.inMemory() {
		return f.data[off : off+size : off+size], nil
	}
	f.mapOnce.Do(f.mapInPlace)
	if f.mapErr == nil {
		return f.mapping.Load().Bytes()[off : off+size : off+size], nil
	}
	if !errors.Is(f.mapErr, errors.ErrUnsupported) {
		return nil, f.mapErr
	}
	b := make([]byte, size)
	_, err := f.readAt(b, off)
	return b, err
}

// mapInPlace maps the file, and checks that it is the one whose header was read.
func (f *File) mapInPlace() {
	if f.mapErr = f.Verify(); f.mapErr != nil {
		return
	}
	m, err := hostmem.Map(f.Path)
	if err != nil {
		f.mapErr = &Error{File: f.Path, Reason: "cannot be mapped", Err: unpath(err)}
		return
	}
	if got := int64(len(m.Bytes())); got != f.Size {
		m.Release()
		f.mapErr = f.changed(got)
		return
	}
	f.mapping.Store(m)
}

func (f *File) changed(size int64) *Error {
	e := failf(f.label(), "", "the file was replaced since it was opened")
	switch {
	case size < f.Size:
		e = failf(f.label(), "", "the file was cut to %d bytes since it was opened with %d", size, f.Size)
	case size == f.Size:
		e = failf(f.label(), "", "the file was overwritten since it was opened")
	}
	e.Err = ErrChanged
	return e
}

// Verify checks that the file at Path is still the open one and has the same size. It returns an
// *Error if the file was truncated, replaced or removed. It reads no contents, with one
// exception: if another file of the same size has replaced it, and no bytes of f are used in
// place, Verify compares the two and continues with the new file if they are equal. For a file in
// memory it always succeeds.
func (f *File) Verify() error {
	if f.inMemory() {
		return nil
	}
	info, err := os.Stat(f.Path)
	if err != nil {
		return &Error{File: f.Path, Reason: "the file is gone since it was opened", Err: unpath(err)}
	}
	switch {
	case !os.SameFile(info, f.identity().info):
		if f.adopt(info) {
			return nil
		}
		e := failf(f.label(), "", "the file was replaced since it was opened")
		e.Err = ErrChanged
		return e
	case info.Size() != f.Size:
		return f.changed(info.Size())
	}
	return nil
}

// now returns the current stamp of the open file.
func (f *File) now() (hostmem.Stamp, error) {
	if m := f.mapping.Load(); m != nil {
		return m.Stamp()
	}
	f.watching.Lock()
	defer f.watching.Unlock()
	if f.watched == nil {
		var err error
		if f.watched, err = os.Open(f.Path); err != nil {
			return hostmem.Stamp{}, err
		}
	}
	return hostmem.StampOf(f.watched)
}

// Advise is [Tensor.Advise] for a range of the file, such as several adjacent tensors.
func (f *File) Advise(off, n int64, a Advice) error {
	if f.inMemory() {
		return nil
	}
	f.mapOnce.Do(f.mapInPlace)
	switch {
	case f.mapErr == nil:
		return f.mapping.Load().Advise(off, n, a.host())
	case errors.Is(f.mapErr, errors.ErrUnsupported) && a != Populate:
		return nil
	}
	return f.mapErr
}

// Resident returns how many of n bytes at off are in the page cache. It returns an error if the
// platform does not tell. For a file in memory it returns n.
func (f *File) Resident(off, n int64) (int64, error) {
	if f.inMemory() {
		return n, nil
	}
	f.mapOnce.Do(f.mapInPlace)
	if f.mapErr != nil {
		return 0, f.mapErr
	}
	return f.mapping.Load().Resident(off, n)
}

// Evict unmaps n bytes at off and removes them from the page cache, unless another process maps
// them. It is a hint.
func (f *File) Evict(off, n int64) {
	if m := f.mapping.Load(); m != nil && f.Advise(off, n, DontNeed) == nil {
		m.Evict(off, n)
	}
}

// holds reports whether address lies in the bytes that the file has returned in place.
func (f *File) holds(address uintptr) bool {
	data := f.data
	if !f.inMemory() {
		m := f.mapping.Load()
		if m == nil {
			return false
		}
		data = m.Bytes()
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return address >= begin && address-begin < uintptr(len(data))
}

func (f *File) close() error {
	if f.closed.Swap(true) {
		return nil
	}
	var err error
	if m := f.mapping.Load(); m != nil {
		err = m.Release()
	}
	if f.reader != nil {
		if e := f.reader.Close(); err == nil {
			err = e
		}
	}
	f.watching.Lock()
	if f.watched != nil {
		_ = f.watched.Close() // nothing was read of it
		f.watched = nil
	}
	f.watching.Unlock()
	f.contents.close()
	return err
}
