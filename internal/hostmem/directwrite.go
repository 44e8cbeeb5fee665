package hostmem

import (
	"fmt"
	"os"
	"unsafe"
)

// OpenDirectWrite opens an existing regular file for reads and writes that bypass the page cache, as
// OpenDirect does for reads. The error is an *fs.PathError.
func OpenDirectWrite(path string) (*DirectFile, error) {
	buffered, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	f := &DirectFile{path: path, buffered: buffered, read: DirectRead}
	if f.direct, err = openDirectWrite(path); err != nil {
		f.direct = nil
		f.refused.Store(true)
		if !refusesDirect(err) {
			_ = buffered.Close() // nothing was written
			return nil, err
		}
	}
	return f, nil
}

// WriteAt writes buf at off. Both must be multiples of 4096 bytes, and buf must begin on such a boundary. If
// the file system does not support direct writes, it writes through the page cache and waits for the disk, so
// that a full disk is an error here. Many goroutines may write different ranges. The file must come from
// OpenDirectWrite.
func (f *DirectFile) WriteAt(buf []byte, off int64) error {
	address := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if off < 0 || off%directAlign != 0 || len(buf)%directAlign != 0 || address%directAlign != 0 {
		return fmt.Errorf("hostmem: %s: got a write of %d bytes from %#x to %d, want multiples of %d", f.path, len(buf), address, off, directAlign)
	}
	done := 0
	for done < len(buf) && !f.refused.Load() {
		n, err := DirectWrite(f.direct, buf[done:], off+int64(done))
		if err != nil && refusesDirect(err) {
			f.refused.Store(true)
			break
		}
		if err != nil {
			return f.writeError(err)
		}
		if done += n; n == 0 || n%directAlign != 0 {
			break
		}
	}
	if done = done &^ (directAlign - 1); done == len(buf) {
		return nil
	}
	_, err := f.buffered.WriteAt(buf[done:], off+int64(done))
	if err == nil {
		err = f.buffered.Sync()
	}
	if err != nil {
		return f.writeError(err)
	}
	DropCache(f.buffered, off+int64(done), int64(len(buf)-done))
	return nil
}

func (f *DirectFile) writeError(err error) error {
	if e, ok := err.(*os.PathError); ok {
		err = e.Err
	}
	return fmt.Errorf("hostmem: %w", &os.PathError{Op: "write", Path: f.path, Err: err})
}
