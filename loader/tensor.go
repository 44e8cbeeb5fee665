package loader

import (
	"fmt"
	"io"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/meta"
)

// A Tensor is a handle for one tensor of a checkpoint. It holds no elements. Its fields must not
// be modified. It is safe for concurrent use until the checkpoint is closed.
type Tensor struct {
	Name   string
	DType  meta.DType
	Shape  []int // empty for a scalar
	File   *File
	Offset int64 // of the first byte in File
	Size   int64 // in bytes
	// Format is the format of the codes in a tensor of a GGUF file, whose elements are then bytes
	// of Uint8. It is meta.QuantNone for values, and for formats that consist of several tensors.
	Format meta.QuantFormat
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int64 {
	if t.DType.Bits() == 0 {
		return 0
	}
	return t.Size * 8 / int64(t.DType.Bits())
}

// Aligned reports whether the tensor's offset is a multiple of its element size. Most are, but
// the format does not require it. Unaligned elements cannot be read as machine words in place.
func (t *Tensor) Aligned() bool {
	word := int64(t.DType.Bits() / 8)
	return word <= 1 || t.Offset%word == 0
}

// Bytes returns the tensor's elements: little-endian, dense, in row-major order. They are in the
// mapped file or in the caller's memory, read-only, and valid until the checkpoint is closed.
// Platforms without mmap read them into new memory. The error is an *Error. See the package's
// caveats for files that are truncated while mapped.
func (t *Tensor) Bytes() ([]byte, error) {
	b, err := t.File.slice(t.Offset, t.Size)
	if err != nil {
		return nil, t.fault(err)
	}
	return b, nil
}

// ReadAt copies elements from byte off of the tensor on, with the contract of io.ReaderAt. For a
// file that was truncated or cannot be read it returns an *Error and never faults.
func (t *Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, t.fault(fmt.Errorf("offset %d", off))
	}
	if off >= t.Size {
		return 0, io.EOF
	}
	short := int64(len(p)) > t.Size-off
	if short {
		p = p[:t.Size-off]
	}
	n, err := t.File.readAt(p, t.Offset+off)
	if err != nil {
		return n, t.fault(err)
	}
	if short {
		err = io.EOF
	}
	return n, err
}

// Location returns where the tensor is on disk, for a caller that opens the file itself. path is
// "" for a checkpoint in memory, which only Bytes and ReadAt can read.
func (t *Tensor) Location() (path string, offset, size int64) {
	return t.File.Path, t.Offset, t.Size
}

// Advise tells the operating system how n bytes of the tensor from off on will be used. It is a
// hint, and does nothing for a checkpoint in memory.
func (t *Tensor) Advise(off, n int64, a Advice) error {
	if off < 0 || n < 0 || off > t.Size || n > t.Size-off {
		return t.fault(fmt.Errorf("advice about bytes [%d, %d) of %d", off, off+n, t.Size))
	}
	if err := t.File.Advise(t.Offset+off, n, a); err != nil {
		return t.fault(err)
	}
	return nil
}

func (t *Tensor) fault(err error) error {
	if e, ok := err.(*Error); ok {
		named := *e
		named.Tensor = t.Name
		return &named
	}
	return &Error{File: t.File.label(), Tensor: t.Name, Reason: "reading", Err: err}
}

// Advice says how bytes will be used.
type Advice uint8

const (
	// WillNeed starts to read the bytes in the background.
	WillNeed Advice = iota
	// DontNeed evicts the pages; the next access reads them again.
	DontNeed
	// Random disables read-ahead: an access reads only its page.
	Random
	// Sequential enables read-ahead again, with a large size.
	Sequential
	// Populate reads and maps the bytes now. It is an error if the platform does not support it.
	Populate
)

func (a Advice) host() hostmem.Advice {
	switch a {
	case DontNeed:
		return hostmem.DontNeed
	case Random:
		return hostmem.Random
	case Sequential:
		return hostmem.Sequential
	case Populate:
		return hostmem.Populate
	}
	return hostmem.WillNeed
}
