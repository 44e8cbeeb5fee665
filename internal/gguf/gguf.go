package gguf

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
)

// Magic is what a file begins with.
const Magic = "GGUF"

// Limits. Published headers have up to some 30 MB, most of it the vocabulary.
const (
	maxHeader  = 512 << 20
	maxKey     = 1 << 16
	maxName    = 1 << 10
	maxString  = 16 << 20
	maxDims    = 4
	maxNesting = 4
	maxTensors = 1 << 22
	maxKeys    = 1 << 16
)

// A Tensor says where a tensor is.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int // slowest dimension first, as in Python; in elements
	Offset int64 // from the beginning of the file
	Size   int64 // in bytes
}

// A File is the header of one file.
type File struct {
	Version uint32
	Meta    Metadata
	Tensors []Tensor // in the order of their offsets
	Header  int64    // bytes before the tensors
}

// An Error says what is wrong with a header.
type Error struct {
	Key, Tensor string // the place, or both empty
	Reason      string
}

// Error returns "KEY: REASON", with the tensor in place of the key where there is one.
func (e *Error) Error() string {
	if at := cmp.Or(e.Key, e.Tensor); at != "" {
		return fmt.Sprintf("%.200q: %s", at, e.Reason)
	}
	return e.Reason
}

func failf(key, format string, args ...any) error {
	return &Error{Key: key, Reason: fmt.Sprintf(format, args...)}
}

func tensorf(name, format string, args ...any) error {
	return &Error{Tensor: name, Reason: fmt.Sprintf(format, args...)}
}

// Read reads the header of a file of size bytes. An error is an *Error, or one of r.
func Read(r io.ReaderAt, size int64) (*File, error) {
	in := &source{r: r, size: min(size, maxHeader), file: size}
	f := &File{}
	tensors, keys, err := in.start(f)
	if err != nil {
		return nil, err
	}
	if f.Meta, err = in.metadata(keys); err != nil {
		return nil, err
	}
	align, err := f.Meta.alignment()
	if err != nil {
		return nil, err
	}
	if f.Tensors, err = in.tensors(tensors, align); err != nil {
		return nil, err
	}
	f.Header = (in.position() + align - 1) / align * align
	if err := f.place(size); err != nil {
		return nil, err
	}
	return f, nil
}

// start reads what stands before the metadata.
func (in *source) start(f *File) (tensors, keys uint64, err error) {
	magic, err := in.bytes(4, "the magic number")
	if err != nil {
		return 0, 0, err
	}
	if string(magic) != Magic {
		return 0, 0, failf("", "no GGUF file: it begins with %q", magic)
	}
	if f.Version, err = in.u32("the version"); err != nil {
		return 0, 0, err
	}
	switch v := f.Version; {
	case v == 2 || v == 3:
	case bits.ReverseBytes32(v) < 1<<16 && v >= 1<<16:
		return 0, 0, failf("", "the file is in big-endian order: convert it again without --bigendian")
	default:
		return 0, 0, failf("", "got GGUF version %d, want 2 or 3", v)
	}
	if tensors, err = in.u64("the number of tensors"); err != nil {
		return 0, 0, err
	}
	if keys, err = in.u64("the number of metadata keys"); err != nil {
		return 0, 0, err
	}
	// The shortest tensor takes 24 bytes, the shortest key 13.
	if most := uint64(in.left()) / 24; tensors > min(most, maxTensors) {
		return 0, 0, failf("", "got %d tensors in a file of %d bytes", tensors, in.file)
	}
	if most := uint64(in.left()) / 13; keys > min(most, maxKeys) {
		return 0, 0, failf("", "got %d metadata keys in a file of %d bytes", keys, in.file)
	}
	return tensors, keys, nil
}

// tensors reads the tensors' names, shapes, types and offsets.
func (in *source) tensors(n uint64, align int64) ([]Tensor, error) {
	list := make([]Tensor, 0, min(n, 1<<12))
	seen := make(map[string]bool, min(n, 1<<12))
	for range n {
		t, err := in.tensor(align)
		if err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, tensorf(t.Name, "the tensor is listed twice")
		}
		seen[t.Name] = true
		list = append(list, t)
	}
	return list, nil
}

func (in *source) tensor(align int64) (Tensor, error) {
	var t Tensor
	name, err := in.text(maxName, "a tensor's name")
	if err != nil {
		return t, err
	}
	t.Name = string(name)
	if t.Name == "" {
		return t, failf("", "a tensor has no name")
	}
	dims, err := in.u32("the number of dimensions")
	if err != nil {
		return t, err
	}
	if dims == 0 || dims > maxDims {
		return t, tensorf(t.Name, "got %d dimensions, want 1 to %d", dims, maxDims)
	}
	t.Shape = make([]int, dims)
	for i := range t.Shape {
		d, err := in.u64("a dimension")
		if err != nil {
			return t, err
		}
		if d == 0 || d > math.MaxInt32 {
			return t, tensorf(t.Name, "got a dimension of %d, want 1 to %d", d, math.MaxInt32)
		}
		t.Shape[int(dims)-1-i] = int(d)
	}
	number, err := in.u32("a tensor's type")
	if err != nil {
		return t, err
	}
	t.Type = Type(number)
	offset, err := in.u64("a tensor's offset")
	if err != nil {
		return t, err
	}
	if offset > uint64(in.file) || int64(offset)%align != 0 {
		return t, tensorf(t.Name, "got offset %d in a file of %d bytes, want a multiple of %d", offset, in.file, align)
	}
	t.Offset = int64(offset)
	return t, t.measure()
}

// measure sets the size of t.
func (t *Tensor) measure() error {
	elements, bytes := t.Type.Block()
	if bytes == 0 {
		return tensorf(t.Name, "got %v, which is not a type of ggml that files have today", t.Type)
	}
	columns := t.Shape[len(t.Shape)-1]
	if columns%elements != 0 {
		return tensorf(t.Name, "got rows of %d elements, want a multiple of %d for %v", columns, elements, t.Type)
	}
	size := uint64(columns / elements * bytes)
	for _, d := range t.Shape[:len(t.Shape)-1] {
		high, low := bits.Mul64(size, uint64(d))
		if high != 0 || low > math.MaxInt64/2 {
			return tensorf(t.Name, "shape %v is too large", t.Shape)
		}
		size = low
	}
	t.Size = int64(size)
	return nil
}

// place makes offsets count from the beginning of the file, sorts the tensors, and checks that each is
// inside the file and that none overlap.
func (f *File) place(size int64) error {
	slices.SortStableFunc(f.Tensors, func(a, b Tensor) int { return cmp.Compare(a.Offset, b.Offset) })
	end := f.Header
	for i := range f.Tensors {
		t := &f.Tensors[i]
		t.Offset += f.Header
		if t.Offset < end {
			return tensorf(t.Name, "begins at byte %d, inside %q, which ends at byte %d", t.Offset, f.Tensors[i-1].Name, end)
		}
		if t.Size > size-t.Offset {
			return tensorf(t.Name, "the file is cut: the tensor takes bytes %d to %d of %d", t.Offset, t.Offset+t.Size, size)
		}
		end = t.Offset + t.Size
	}
	return nil
}
