package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of Parquet files. A file says how much memory its reader allocates, so that it is checked first.
const (
	parquetFooter   = 64 << 20 // bytes of metadata
	parquetElements = 1 << 20  // of lists in metadata
	parquetPage     = 64 << 20 // bytes of a page, compressed or not
	parquetValues   = 16 << 20 // of a page
	parquetHeader   = 1 << 20  // bytes of a page's header
	parquetDepth    = 32       // of nested values
	rowsPerByte     = 8        // of the file
)

// parquetMeta is the part of a file's metadata that reading its rows takes.
type parquetMeta struct {
	schema []parquetElement // depth first
	groups []parquetGroup
}

// parquetElement is a node of the schema.
type parquetElement struct {
	name       string
	kind       int64 // of a leaf
	repetition int64
	children   int64
	leaf       bool
}

// Repetitions.
const (
	parquetOptional = 1
	parquetRepeated = 2
)

type parquetGroup struct {
	rows    int64
	columns []parquetChunk
}

// parquetChunk is the pages of a column in a row group.
type parquetChunk struct {
	elsewhere, encrypted         bool
	kind, codec, values          int64
	size, first, dictionaryFirst int64 // bytes, and offsets of pages
}

// readParquetMeta reads the metadata at the end of a file.
func readParquetMeta(f io.ReaderAt, size int64) (*parquetMeta, error) {
	if size < 12 {
		return nil, fmt.Errorf("got %d bytes, want a Parquet file", size)
	}
	tail := make([]byte, 8)
	if _, err := f.ReadAt(tail, size-8); err != nil {
		return nil, err
	}
	switch string(tail[4:]) {
	case "PAR1":
	case "PARE":
		return nil, errors.New("the file is encrypted, which is not supported")
	default:
		return nil, fmt.Errorf("got %q at its end, want PAR1: the file is truncated or not Parquet", tail[4:])
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > size-12 || n > parquetFooter {
		return nil, fmt.Errorf("got metadata of %d bytes, want at most %d", n, min(size-12, parquetFooter))
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, size-8-n); err != nil {
		return nil, err
	}
	m, c := new(parquetMeta), compact{b: b}
	c.fields(func(id int, kind byte) {
		switch id {
		case 2:
			c.list(kind, func(kind byte) { m.schema = append(m.schema, c.element()) })
		case 4:
			c.list(kind, func(kind byte) { m.groups = append(m.groups, c.group()) })
		default:
			c.skip(kind)
		}
	})
	if c.err != nil {
		return nil, fmt.Errorf("metadata: %w", c.err)
	}
	if len(m.schema) == 0 {
		return nil, errors.New("metadata: got no schema")
	}
	return m, nil
}

func (c *compact) element() (e parquetElement) {
	c.fields(func(id int, kind byte) {
		switch id {
		case 1:
			e.kind, e.leaf = c.integer(), true
		case 3:
			e.repetition = c.integer()
		case 4:
			e.name = string(c.bytes())
		case 5:
			e.children = c.integer()
		default:
			c.skip(kind)
		}
	})
	e.leaf = e.leaf && e.children == 0
	return e
}

func (c *compact) group() (g parquetGroup) {
	c.fields(func(id int, kind byte) {
		switch id {
		case 1:
			c.list(kind, func(kind byte) { g.columns = append(g.columns, c.chunk()) })
		case 3:
			g.rows = c.integer()
		default:
			c.skip(kind)
		}
	})
	return g
}

func (c *compact) chunk() (k parquetChunk) {
	c.fields(func(id int, kind byte) {
		switch id {
		case 1:
			k.elsewhere = len(c.bytes()) > 0
		case 3:
			c.fields(func(id int, kind byte) {
				to := map[int]*int64{1: &k.kind, 4: &k.codec, 5: &k.values, 7: &k.size, 9: &k.first, 11: &k.dictionaryFirst}[id]
				if to == nil {
					c.skip(kind)
					return
				}
				*to = c.integer()
			})
		case 8, 9:
			k.encrypted = true
			c.skip(kind)
		default:
			c.skip(kind)
		}
	})
	return k
}

// Kinds of pages.
const (
	parquetData       = 0
	parquetDictionary = 2
	parquetDataV2     = 3
)

// parquetPageHeader is what a page says of itself.
type parquetPageHeader struct {
	size                           int64 // of the header
	kind, uncompressed, compressed int64
	values, encoding               int64
	levels                         int64 // encoding of the definition levels of version 1
	definitions, repetitions       int64 // bytes of levels of version 2, which are not compressed
	plain                          bool  // of version 2: its values are not compressed either
}

func (h *parquetPageHeader) read(c *compact) {
	c.fields(func(id int, kind byte) {
		switch id {
		case 1:
			h.kind = c.integer()
		case 2:
			h.uncompressed = c.integer()
		case 3:
			h.compressed = c.integer()
		case 5, 7, 8:
			h.body(c, id == 8)
		default:
			c.skip(kind)
		}
	})
	h.size = int64(c.at)
}

// body reads what a kind of pages has in its header.
func (h *parquetPageHeader) body(c *compact, second bool) {
	c.fields(func(id int, kind byte) {
		switch {
		case id == 1:
			h.values = c.integer()
		case id == 2 && !second || id == 4 && second:
			h.encoding = c.integer()
		case id == 3 && !second && kind != compactTrue && kind != compactFalse: // of a dictionary it says whether it is sorted
			h.levels = c.integer()
		case id == 5 && second:
			h.definitions = c.integer()
		case id == 6 && second:
			h.repetitions = c.integer()
		case id == 7 && second:
			h.plain = kind == compactFalse
		default:
			c.skip(kind)
		}
	})
}

// check reports sizes that cannot be, or are too large. left is the bytes that the column has behind the header.
func (h *parquetPageHeader) check(left int64) error {
	switch {
	case h.compressed < 0 || h.compressed > left:
		return fmt.Errorf("got a page of %d bytes, want at most %d", h.compressed, left)
	case h.uncompressed < 0 || h.compressed > parquetPage || h.uncompressed > parquetPage:
		return fmt.Errorf("got a page of %d bytes, %d uncompressed, want at most %d: write the file with smaller pages", h.compressed, h.uncompressed, parquetPage)
	case h.values < 0 || h.values > parquetValues:
		return fmt.Errorf("got a page of %d values, want at most %d: write the file with smaller pages", h.values, parquetValues)
	case h.definitions < 0 || h.repetitions < 0 || h.definitions+h.repetitions > min(h.compressed, h.uncompressed):
		return fmt.Errorf("got levels of %d and %d bytes in a page of %d", h.repetitions, h.definitions, h.compressed)
	}
	return nil
}

// compact reads Thrift's compact protocol, in which Parquet has its metadata. It keeps the first error.
type compact struct {
	b        []byte
	at       int
	depth    int
	elements int // of lists so far
	err      error
}

// Types of the protocol.
const (
	compactTrue   = 1
	compactFalse  = 2
	compactByte   = 3
	compactDouble = 7
	compactBinary = 8
	compactList   = 9
	compactSet    = 10
	compactMap    = 11
	compactStruct = 12
)

var errShort = errors.New("the data ends within a value")

func (c *compact) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *compact) byte() byte {
	if b := c.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// take returns the next n bytes.
func (c *compact) take(n uint64) []byte {
	if c.err == nil && n > uint64(len(c.b)-c.at) {
		c.fail(errShort)
	}
	if c.err != nil {
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at]
}

func (c *compact) unsigned() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.b[c.at:])
	if n <= 0 {
		c.fail(errShort)
		return 0
	}
	c.at += n
	return v
}

// integer reads a number of any integer type but a byte.
func (c *compact) integer() int64 { return zigzag(c.unsigned()) }

func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func (c *compact) bytes() []byte { return c.take(c.unsigned()) }

// fields calls f for each field of a struct. f reads its value, but that of a boolean is its type.
func (c *compact) fields(f func(id int, kind byte)) {
	if c.depth++; c.depth > parquetDepth {
		c.fail(fmt.Errorf("got metadata nested deeper than %d", parquetDepth))
	}
	defer func() { c.depth-- }()
	id := 0
	for c.err == nil {
		b := c.byte()
		if b == 0 {
			return
		}
		if delta := int(b >> 4); delta > 0 {
			id += delta
		} else {
			id = int(c.integer())
		}
		f(id, b&0xf)
	}
}

// list calls f for each element of a list of structs.
func (c *compact) list(kind byte, f func(kind byte)) {
	if kind != compactList {
		c.fail(fmt.Errorf("got a value of type %d, want a list", kind))
		return
	}
	n, element := c.head()
	if element != compactStruct {
		c.fail(fmt.Errorf("got a list of type %d, want structs", element))
	}
	c.repeat(n, func() { f(element) })
}

func (c *compact) head() (n uint64, element byte) {
	b := c.byte()
	if n = uint64(b >> 4); n == 15 {
		n = c.unsigned()
	}
	return n, b & 0xf
}

// repeat calls f n times. It fails for more elements than there are bytes.
func (c *compact) repeat(n uint64, f func()) {
	if most := uint64(min(len(c.b)-c.at, parquetElements-c.elements)); c.err == nil && n > most {
		c.fail(fmt.Errorf("got a list of %d elements, want at most %d", n, most))
	}
	if c.err != nil {
		return
	}
	c.elements += int(n)
	for range n {
		if f(); c.err != nil {
			return
		}
	}
}

// skip walks a value.
func (c *compact) skip(kind byte) {
	switch kind {
	case compactTrue, compactFalse:
	case compactByte:
		c.byte()
	case compactDouble:
		c.take(8)
	case compactBinary:
		c.bytes()
	case compactList, compactSet:
		n, element := c.head()
		c.repeat(n, func() { c.skipElement(element) })
	case compactMap:
		if n := c.unsigned(); n > 0 {
			kinds := c.byte()
			c.repeat(n, func() { c.skipElement(kinds >> 4); c.skipElement(kinds & 0xf) })
		}
	case compactStruct:
		c.fields(func(_ int, kind byte) { c.skip(kind) })
	default:
		c.integer()
	}
}

// skipElement is skip within a list, where a boolean takes a byte. Lists of lists count as nested.
func (c *compact) skipElement(kind byte) {
	if kind == compactTrue || kind == compactFalse {
		kind = compactByte
	}
	if c.depth++; c.depth > parquetDepth {
		c.fail(fmt.Errorf("got metadata nested deeper than %d", parquetDepth))
	}
	defer func() { c.depth-- }()
	c.skip(kind)
}
