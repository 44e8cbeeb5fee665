package loader

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
)

// maxHeader is the maximum length of a header in bytes, as in the reference.
const maxHeader = 100_000_000

// lengthSize is the size of the header's length at the beginning of a file.
const lengthSize = 8

// A header is the parsed header of a safetensors file.
type header struct {
	tensors  []Tensor         // by offset; File is not set
	index    map[string]int32 // position of each name in tensors, or nil if they were sorted
	metadata map[string]string
	text     []byte // the JSON text
}

// readHeader reads the header of a file of size bytes and checks all of it: the JSON text, every
// field, and that the tensors cover the rest of the file without gap or overlap. It accepts
// exactly what safetensors 0.8.0 accepts. Errors are *Error without File.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	var length [lengthSize]byte
	if size < lengthSize {
		return nil, failf("", "", "%d bytes are too few for a safetensors file", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, unread("reading the header's length", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		if advice := foreign(string(length[:])); advice != "" {
			return nil, failf("", "", "%s", advice)
		}
		return nil, failf("", "", "got a header of %d bytes, want at most %d", n, maxHeader)
	}
	if int64(n) > size-lengthSize {
		return nil, failf("", "", "got a header of %d bytes in a file of %d", n, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, lengthSize); err != nil && !(err == io.EOF && n == 0) {
		return nil, unread("reading the header", err)
	}
	return parseHeader(text, lengthSize+int64(n), size)
}

// unread returns the error for a part of a header that cannot be read.
func unread(what string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Reason: what, Err: err}
}

// foreign returns what a file is that begins with the text begin, and what to do. It returns ""
// for bytes that are not text: a header's length ends with zeros.
func foreign(begin string) string {
	switch {
	case strings.HasPrefix(begin, "GGUF"):
		return ggufAdvice
	case strings.HasPrefix(begin, "version "):
		return smallfile.ErrPointer.Error()
	case strings.ContainsFunc(begin, func(c rune) bool { return c > unicode.MaxASCII || !unicode.IsPrint(c) && !unicode.IsSpace(c) }):
		return ""
	}
	return fmt.Sprintf("no safetensors file: it begins with the text %q", begin)
}

// parseHeader parses a header's text. The data begins at byte data of a file of size bytes.
func parseHeader(text []byte, data, size int64) (*header, error) {
	if !utf8.Valid(text) {
		return nil, failf("", "", "header is not UTF-8")
	}
	hint := min(len(text)/entrySize, 1<<17)
	p := headerParser{
		scanner: newScanner(text, false),
		tensors: make([]Tensor, 0, hint),
		spans:   make([]span, 0, hint),
		index:   make(map[string]int32, hint),
	}
	if err := p.parse(); err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Reason: "header: " + err.Error()}
		}
		return nil, e
	}
	end, err := place(p.spans, p.tensors)
	if err != nil {
		return nil, err
	}
	if want := uint64(size - data); end != want {
		if end > want {
			return nil, failf("", "", "the file is cut: its tensors take %d bytes after the header, %d are there", end, want)
		}
		return nil, failf("", "", "got %d bytes after the last tensor, want none", want-end)
	}
	if !slices.IsSortedFunc(p.tensors, byPlace) {
		slices.SortFunc(p.tensors, byPlace)
		p.index = nil
	}
	for i := range p.tensors {
		p.tensors[i].Offset += data
	}
	return &header{tensors: p.tensors, index: p.index, metadata: p.metadata, text: text}, nil
}

// entrySize is the approximate number of header bytes per tensor. It is a capacity, not a limit.
const entrySize = 128

func byPlace(a, b Tensor) int {
	return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
}

// A span is the position of a tensor according to the header, counted from the end of the header,
// and the size that follows from its shape and dtype.
type span struct {
	begin, end uint64
	tensor     int32
	err        error // why the size cannot be computed
}

// place checks that the spans, in order of offset, follow each other from 0, and that the length
// of each matches its shape and dtype. It sets the tensors' offsets and sizes.
func place(spans []span, tensors []Tensor) (end uint64, err error) {
	byOffsets := func(a, b span) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) }
	if !slices.IsSortedFunc(spans, byOffsets) {
		slices.SortFunc(spans, byOffsets)
	}
	for _, s := range spans {
		t := &tensors[s.tensor]
		if s.err != nil {
			return 0, &Error{Tensor: t.Name, Reason: s.err.Error()}
		}
		if s.begin != end || s.end < s.begin {
			return 0, failf("", t.Name, "data_offsets [%d, %d], but the tensor before ends at %d", s.begin, s.end, end)
		}
		if s.end-s.begin != uint64(t.Size) {
			return 0, failf("", t.Name, "%s of shape %v takes %d bytes, data_offsets [%d, %d] hold %d",
				t.DType.Safetensors(), short(t.Shape), t.Size, s.begin, s.end, s.end-s.begin)
		}
		t.Offset = int64(s.begin)
		end = s.end
	}
	return end, nil
}

// short returns a shape for a message. A malicious shape may have thousands of dimensions.
func short(shape []int) []int { return shape[:min(len(shape), 16)] }

// A headerParser collects the tensors of a header. If a name occurs twice, its last entry counts,
// but all entries must be well-formed.
type headerParser struct {
	scanner
	tensors  []Tensor
	spans    []span
	index    map[string]int32
	metadata map[string]string
	hasMeta  bool
	dims     []int    // chunk from which shapes are cut
	shape    []uint64 // of the current tensor
}

func (p *headerParser) parse() error {
	if err := p.Object("an object", p.member); err != nil {
		return err
	}
	return p.end()
}

func (p *headerParser) member(key []byte) error {
	if string(key) == "__metadata__" {
		return p.readMetadata()
	}
	name := string(key)
	in := tensorInfo{p: p}
	err := in.read()
	if err == nil {
		err = in.complete()
	}
	if err == nil {
		p.add(name, &in)
		return nil
	}
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		return &Error{Tensor: name, Reason: "header: " + err.Error()}
	}
	return err
}

func (p *headerParser) readMetadata() error {
	if p.hasMeta {
		return p.fail("a second __metadata__")
	}
	p.hasMeta = true
	if null, err := p.Null(); null || err != nil {
		return err
	}
	p.metadata = map[string]string{}
	return p.Object("__metadata__ to be an object", func(key []byte) error {
		k := string(key)
		v, err := p.String()
		p.metadata[k] = string(v)
		return err
	})
}

func (p *headerParser) add(name string, in *tensorInfo) {
	size, err := byteSize(p.shape, in.dtype)
	t := Tensor{Name: name, DType: in.dtype, Shape: p.keepShape(), Size: size}
	s := span{begin: in.offsets[0], end: in.offsets[1], err: err}
	if at, twice := p.index[name]; twice {
		s.tensor = at
		p.tensors[at], p.spans[at] = t, s
		return
	}
	s.tensor = int32(len(p.tensors))
	p.index[name] = s.tensor
	p.tensors, p.spans = append(p.tensors, t), append(p.spans, s)
}

// keepShape copies the current shape into a chunk that many tensors share. A dimension beyond an
// int is only possible in an empty tensor, and is reduced to the largest int.
func (p *headerParser) keepShape() []int {
	n := len(p.shape)
	if cap(p.dims)-len(p.dims) < n {
		p.dims = make([]int, 0, max(n, 1024))
	}
	begin := len(p.dims)
	for _, d := range p.shape {
		p.dims = append(p.dims, int(min(d, math.MaxInt)))
	}
	return p.dims[begin:len(p.dims):len(p.dims)]
}

// errOverflow and errSubByte are the reasons why a shape has no size in bytes.
var (
	errOverflow = errors.New("the shape's elements do not fit in 64 bits")
	errSubByte  = errors.New("the elements do not fill whole bytes")
)

// byteSize returns the size of a tensor in bytes. As in the reference, a product that overflows
// is an error even if a later dimension is 0, but not if an earlier one is.
func byteSize(shape []uint64, dtype meta.DType) (int64, error) {
	n := uint64(1)
	var over uint64
	for _, d := range shape {
		if over, n = bits.Mul64(n, d); over != 0 {
			return 0, errOverflow
		}
	}
	if over, n = bits.Mul64(n, uint64(dtype.Bits())); over != 0 {
		return 0, errOverflow
	}
	if n%8 != 0 {
		return 0, errSubByte
	}
	return int64(n / 8), nil
}

// A tensorInfo is the value of one tensor in a header: an object, or an array of the
// three fields in order.
type tensorInfo struct {
	p                             *headerParser
	dtype                         meta.DType
	offsets                       [2]uint64
	hasDType, hasShape, hasOffset bool
}

func (in *tensorInfo) read() error {
	if in.p.Peek() != '[' {
		return in.p.Object("a tensor to be an object", in.member)
	}
	return in.p.Array("", func(i int) error {
		switch i {
		case 0:
			return in.readDType()
		case 1:
			return in.readShape()
		case 2:
			return in.readOffsets()
		}
		return in.p.fail("a tensor of more than three fields")
	})
}

func (in *tensorInfo) member(key []byte) error {
	switch string(key) {
	case "dtype":
		return in.readDType()
	case "shape":
		return in.readShape()
	case "data_offsets":
		return in.readOffsets()
	}
	return in.p.Skip()
}

func (in *tensorInfo) complete() error {
	switch {
	case !in.hasDType:
		return in.p.fail("no dtype")
	case !in.hasShape:
		return in.p.fail("no shape")
	case !in.hasOffset:
		return in.p.fail("no data_offsets")
	}
	return nil
}

// once marks a field as seen. It returns an error if it was already seen.
func (in *tensorInfo) once(seen *bool, field string) error {
	if *seen {
		return in.p.fail(field + " twice")
	}
	*seen = true
	return nil
}

// readDType reads the name of a dtype. Like the reference, it also accepts an object with the
// name as its only key and null as the value.
func (in *tensorInfo) readDType() error {
	if err := in.once(&in.hasDType, "dtype"); err != nil {
		return err
	}
	if in.p.Peek() != '{' {
		name, err := in.p.String()
		if err != nil {
			return err
		}
		return in.setDType(name)
	}
	names := 0
	err := in.p.Object("", func(key []byte) error {
		if names++; names > 1 {
			return in.p.fail("dtype of several names")
		}
		if err := in.setDType(key); err != nil {
			return err
		}
		null, err := in.p.Null()
		if err == nil && !null {
			return in.p.fail("expected null")
		}
		return err
	})
	if err == nil && names == 0 {
		return in.p.fail("dtype without a name")
	}
	return err
}

func (in *tensorInfo) setDType(name []byte) error {
	dtype, ok := meta.SafetensorsDType(string(name))
	if !ok {
		return in.p.fail("unknown dtype " + printable(string(name)))
	}
	in.dtype = dtype
	return nil
}

func (in *tensorInfo) readShape() error {
	if err := in.once(&in.hasShape, "shape"); err != nil {
		return err
	}
	in.p.shape = in.p.shape[:0]
	return in.p.Array("shape to be an array", func(int) error {
		d, err := in.p.natural()
		in.p.shape = append(in.p.shape, d)
		return err
	})
}

func (in *tensorInfo) readOffsets() error {
	if err := in.once(&in.hasOffset, "data_offsets"); err != nil {
		return err
	}
	n := 0
	err := in.p.Array("data_offsets to be an array", func(i int) error {
		if n++; n > 2 {
			return in.p.fail("more than two data_offsets")
		}
		v, err := in.p.natural()
		in.offsets[i] = v
		return err
	})
	if err == nil && n != 2 {
		return in.p.fail("data_offsets are not two")
	}
	return err
}
