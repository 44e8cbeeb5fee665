package finetune

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/heftai/heft/train/data"
)

// sequenceCodec and comparisonCodec encode samples for cache files.
type (
	sequenceCodec   struct{}
	comparisonCodec struct{}
)

// Codes of labels. Most labels are ignored or equal the id.
const (
	labelIgnored = iota
	labelID
	labelOther // or greater: the label follows
)

func (sequenceCodec) Append(b []byte, s data.Sequence) []byte {
	b = appendIDs(b, s.IDs)
	for i, label := range s.Labels {
		switch label {
		case data.IgnoreLabel:
			b = append(b, labelIgnored)
		case s.IDs[i]:
			b = append(b, labelID)
		default:
			b = binary.AppendVarint(append(b, labelOther), int64(label))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(s.Positions)))
	last := int32(-1)
	for _, p := range s.Positions {
		b, last = binary.AppendVarint(b, int64(p-last)), p
	}
	return b
}

func (sequenceCodec) Decode(b []byte) (s data.Sequence, err error) {
	d := decoder{b: b}
	s.IDs = d.ids()
	s.Labels = make([]int32, len(s.IDs))
	for i := range s.Labels {
		switch d.unsigned() {
		case labelIgnored:
			s.Labels[i] = data.IgnoreLabel
		case labelID:
			s.Labels[i] = s.IDs[i]
		default:
			s.Labels[i] = int32(d.signed())
		}
	}
	if n := d.count(); n > 0 {
		s.Positions = make([]int32, n)
		last := int32(-1)
		for i := range s.Positions {
			last += int32(d.signed())
			s.Positions[i] = last
		}
	}
	return s, d.end()
}

func (comparisonCodec) Append(b []byte, c data.Comparison) []byte {
	b = append(appendIDs(b, c.Prompt), 0)
	if c.Desirable {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.Margin))
	b = binary.AppendUvarint(b, uint64(len(c.Completions)))
	for _, ids := range c.Completions {
		b = appendIDs(b, ids)
	}
	return b
}

func (comparisonCodec) Decode(b []byte) (c data.Comparison, err error) {
	d := decoder{b: b}
	c.Prompt = d.ids()
	c.Desirable = d.unsigned() == 1
	if len(d.b) >= 8 {
		c.Margin = math.Float64frombits(binary.LittleEndian.Uint64(d.b))
		d.b = d.b[8:]
	}
	for range d.count() {
		c.Completions = append(c.Completions, d.ids())
	}
	return c, d.end()
}

func appendIDs(b []byte, ids []int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(uint32(id)))
	}
	return b
}

// decoder reads the encoding that Append writes. The file has been verified, so a decoding error
// means that another version wrote it.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) unsigned() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.failed = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.failed = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of items that follow. It fails if they cannot fit in the rest, at one byte
// or more each.
func (d *decoder) count() int {
	n := d.unsigned()
	if n > uint64(len(d.b)) {
		d.failed = true
		return 0
	}
	return int(n)
}

func (d *decoder) ids() []int32 {
	ids := make([]int32, d.count())
	for i := range ids {
		ids[i] = int32(uint32(d.unsigned()))
	}
	return ids
}

func (d *decoder) end() error {
	if d.failed || len(d.b) > 0 {
		return errors.New("got a sample of another form")
	}
	return nil
}

// chain concatenates data sets.
type chain[S any] []data.Dataset[S]

func (c chain[S]) Len() (n int) {
	for _, d := range c {
		n += d.Len()
	}
	return n
}

func (c chain[S]) At(i int) (S, error) {
	for _, d := range c {
		if n := d.Len(); i < n {
			return d.At(i)
		} else {
			i -= n
		}
	}
	var none S
	return none, errors.New("finetune: got a sample behind the last one")
}

// subset is a selection of a data set's samples.
type subset[S any] struct {
	of   data.Dataset[S]
	some []int64
}

// newSubset returns the samples with the given indices, in the order of the set. It sorts indices
// in place.
func newSubset[S any](of data.Dataset[S], indices []int) subset[S] {
	s := subset[S]{of: of}
	slices.Sort(indices)
	for _, k := range indices {
		s.some = append(s.some, int64(k))
	}
	return s
}

func (s subset[S]) Len() int            { return len(s.some) }
func (s subset[S]) At(i int) (S, error) { return s.of.At(int(s.some[i])) }
