package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Physical types of values.
const (
	parquetBool   = 0
	parquetInt32  = 1
	parquetInt64  = 2
	parquetFloat  = 4
	parquetDouble = 5
	parquetBytes  = 6
)

// Encodings of values.
const (
	parquetPlain       = 0
	parquetPlainDict   = 2
	parquetRLE         = 3
	parquetDelta       = 5
	parquetDeltaLength = 6
	parquetDeltaBytes  = 7
	parquetDict        = 8
)

// parquetColumnPages reads the pages of a column in a row group, one after another.
type parquetColumnPages struct {
	file     io.ReaderAt
	leaf     *parquetNode
	codec    int64
	at, end  int64
	left     int64 // values that are not read yet
	known    parquetVector
	hasKnown bool
	buffer   []byte // for headers
}

// parquetVector is decoded values: numbers and booleans as bits, texts as slices.
type parquetVector struct {
	numbers []uint64
	texts   [][]byte
}

// parquetPageValues is a page: a level of each kind for each value, and those values that are not null.
type parquetPageValues struct {
	definitions, repetitions []uint8 // nil if they are 0
	count                    int
	values                   parquetVector
	indices                  []uint32 // into the dictionary, in place of values
}

// open checks where the pages of a column are.
func (k *parquetChunk) open(f io.ReaderAt, size int64, leaf *parquetNode) (*parquetColumnPages, error) {
	at := k.first
	if k.dictionaryFirst > 0 && k.dictionaryFirst < at {
		at = k.dictionaryFirst
	}
	switch {
	case k.elsewhere || k.encrypted:
		return nil, errors.New("got pages in another file or encrypted, which is not supported")
	case at < 0 || k.size < 0 || at > size || k.size > size-at:
		return nil, fmt.Errorf("got %d bytes of pages from byte %d on in a file of %d bytes", k.size, at, size)
	case k.kind != leaf.physical:
		return nil, fmt.Errorf("got pages of type %d, want %d as in the schema", k.kind, leaf.physical)
	}
	return &parquetColumnPages{file: f, leaf: leaf, codec: k.codec, at: at, end: at + k.size, left: k.values, buffer: make([]byte, 1024)}, nil
}

// next returns the next page with values. It returns io.EOF at the end.
func (p *parquetColumnPages) next() (*parquetPageValues, error) {
	for p.left > 0 && p.at < p.end {
		at := p.at
		v, err := p.page()
		if err != nil {
			return nil, fmt.Errorf("page at byte %d: %w", at, err)
		}
		if v != nil {
			p.left -= int64(v.count)
			return v, nil
		}
	}
	return nil, io.EOF
}

// header reads the header of the next page.
func (p *parquetColumnPages) header() (h parquetPageHeader, err error) {
	for {
		b := p.buffer[:min(int64(len(p.buffer)), p.end-p.at)]
		if _, err := p.file.ReadAt(b, p.at); err != nil {
			return h, err
		}
		h = parquetPageHeader{}
		c := compact{b: b}
		h.read(&c)
		switch {
		case c.err == nil:
			return h, h.check(p.end - p.at - h.size)
		case !errors.Is(c.err, errShort) || int64(len(b)) == p.end-p.at || len(b) >= parquetHeader:
			return h, c.err
		}
		p.buffer = make([]byte, 4*len(p.buffer))
	}
}

// page reads a page. It returns nil for a dictionary.
func (p *parquetColumnPages) page() (*parquetPageValues, error) {
	h, err := p.header()
	if err != nil {
		return nil, err
	}
	raw := make([]byte, h.compressed)
	if _, err := p.file.ReadAt(raw, p.at+h.size); err != nil {
		return nil, err
	}
	p.at += h.size + h.compressed
	levels := h.repetitions + h.definitions
	codec := p.codec
	if h.kind == parquetDataV2 && h.plain {
		codec = 0
	}
	body, err := unpacked(raw[levels:], h.uncompressed-levels, codec)
	if err != nil {
		return nil, err
	}
	switch h.kind {
	case parquetDictionary:
		if h.encoding != parquetPlain && h.encoding != parquetPlainDict || p.hasKnown {
			return nil, fmt.Errorf("got a dictionary of encoding %d, or a second one", h.encoding)
		}
		p.hasKnown = true
		p.known, err = plainValues(body, int(h.values), p.leaf.physical)
		return nil, err
	case parquetData, parquetDataV2:
		v := &parquetPageValues{count: int(h.values)}
		if h.kind == parquetDataV2 {
			err = v.levels(p.leaf, raw[:h.repetitions], raw[h.repetitions:levels])
		} else {
			body, err = v.prefixedLevels(p.leaf, body, h.levels)
		}
		if err == nil {
			err = p.decode(v, body, h.encoding)
		}
		return v, err
	}
	return nil, nil // of an index
}

// prefixedLevels decodes the levels of version 1, which have their length before them, and returns the rest.
func (v *parquetPageValues) prefixedLevels(leaf *parquetNode, body []byte, encoding int64) (rest []byte, err error) {
	cut := func(most int) (b []byte) {
		if most == 0 || err != nil {
			return nil
		}
		if len(body) < 4 || uint64(binary.LittleEndian.Uint32(body)) > uint64(len(body)-4) {
			err = errShort
			return nil
		}
		n := 4 + int(binary.LittleEndian.Uint32(body))
		b, body = body[4:n], body[n:]
		return b
	}
	if leaf.most > 0 && encoding != parquetRLE {
		return nil, fmt.Errorf("got levels of encoding %d, want %d", encoding, parquetRLE)
	}
	repetitions, definitions := cut(leaf.deepest), cut(leaf.most)
	if err != nil {
		return nil, err
	}
	return body, v.levels(leaf, repetitions, definitions)
}

// levels decodes levels.
func (v *parquetPageValues) levels(leaf *parquetNode, repetitions, definitions []byte) (err error) {
	decode := func(b []byte, most int) []uint8 {
		if most == 0 || err != nil {
			return nil
		}
		var wide []uint32
		if wide, err = hybrid(b, v.count, bits.Len(uint(most))); err != nil {
			return nil
		}
		out := make([]uint8, len(wide))
		for i, x := range wide {
			if int(x) > most {
				err = fmt.Errorf("got a level of %d, want at most %d", x, most)
			}
			out[i] = uint8(x)
		}
		return out
	}
	v.repetitions, v.definitions = decode(repetitions, leaf.deepest), decode(definitions, leaf.most)
	return err
}

// decode decodes the values that are not null.
func (p *parquetColumnPages) decode(v *parquetPageValues, body []byte, encoding int64) (err error) {
	n := v.count
	for _, d := range v.definitions {
		if int(d) < p.leaf.most {
			n--
		}
	}
	text := p.leaf.physical == parquetBytes
	switch {
	case n == 0:
	case encoding == parquetPlain:
		v.values, err = plainValues(body, n, p.leaf.physical)
	case encoding == parquetDict || encoding == parquetPlainDict:
		if v.indices, err = p.indices(body, n); err == nil {
			v.values = p.known
		}
	case encoding == parquetRLE && p.leaf.physical == parquetBool:
		if len(body) < 4 {
			return errShort
		}
		var wide []uint32
		wide, err = hybrid(body[4:], n, 1)
		for _, x := range wide {
			v.values.numbers = append(v.values.numbers, uint64(x))
		}
	case encoding == parquetDelta && (p.leaf.physical == parquetInt32 || p.leaf.physical == parquetInt64):
		var numbers []int64
		numbers, _, err = deltas(body, n)
		for _, x := range numbers {
			v.values.numbers = append(v.values.numbers, uint64(x))
		}
	case encoding == parquetDeltaLength && text:
		v.values.texts, err = deltaLengths(body, n)
	case encoding == parquetDeltaBytes && text:
		v.values.texts, err = deltaBytes(body, n)
	default:
		err = fmt.Errorf("encoding %d of type %d is not supported: write the file with plain or dictionary encoding", encoding, p.leaf.physical)
	}
	return err
}

// indices decodes indices into the dictionary.
func (p *parquetColumnPages) indices(body []byte, n int) ([]uint32, error) {
	if n == 0 {
		return nil, nil
	}
	if len(body) == 0 || body[0] > 32 || !p.hasKnown {
		return nil, errors.New("got indices without a dictionary, or of more than 32 bits")
	}
	list, err := hybrid(body[1:], n, int(body[0]))
	for _, i := range list {
		if int(i) >= max(len(p.known.numbers), len(p.known.texts)) {
			return nil, fmt.Errorf("got index %d into a dictionary of %d values", i, max(len(p.known.numbers), len(p.known.texts)))
		}
	}
	return list, err
}

// unpacked decompresses a page, which must become size bytes.
func unpacked(b []byte, size, codec int64) ([]byte, error) {
	var from io.Reader
	switch codec {
	case 0:
		if int64(len(b)) != size {
			return nil, fmt.Errorf("got %d bytes, want %d", len(b), size)
		}
		return b, nil
	case 1:
		if n, err := snappy.DecodedLen(b); err != nil || int64(n) != size {
			return nil, fmt.Errorf("it becomes %d bytes, want %d", n, size)
		}
		return snappy.Decode(make([]byte, size), b)
	case 2:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		from = z
	case 6:
		z, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(parquetPage))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		from = z
	default:
		names := map[int64]string{3: "lzo", 4: "brotli", 5: "lz4", 7: "lz4"}
		return nil, fmt.Errorf("compression %s (%d) is not supported: write the file with zstd, snappy, gzip or none", names[codec], codec)
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(from, out); err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	if n, _ := from.Read(make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("it becomes more than %d bytes", size)
	}
	return out, nil
}

// plainValues decodes n values as they are.
func plainValues(b []byte, n int, physical int64) (v parquetVector, err error) {
	width := map[int64]int{parquetInt32: 4, parquetFloat: 4, parquetInt64: 8, parquetDouble: 8}[physical]
	switch {
	case physical == parquetBool && len(b) >= (n+7)/8:
		v.numbers = make([]uint64, n)
		for i := range v.numbers {
			v.numbers[i] = uint64(b[i/8] >> (i % 8) & 1)
		}
	case width > 0 && len(b) >= n*width:
		v.numbers = make([]uint64, n)
		for i := range v.numbers {
			switch x := b[i*width:]; {
			case width == 8:
				v.numbers[i] = binary.LittleEndian.Uint64(x)
			case physical == parquetInt32:
				v.numbers[i] = uint64(int64(int32(binary.LittleEndian.Uint32(x))))
			default:
				v.numbers[i] = math.Float64bits(float64(math.Float32frombits(binary.LittleEndian.Uint32(x))))
			}
		}
	case physical == parquetBytes && len(b) >= 4*n:
		v.texts = make([][]byte, n)
		for i := range v.texts {
			if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
				return v, errShort
			}
			size := 4 + int(binary.LittleEndian.Uint32(b))
			v.texts[i], b = b[4:size:size], b[size:]
		}
	default:
		return v, errShort
	}
	return v, nil
}
