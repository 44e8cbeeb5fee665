package tokenizer

import "fmt"

// merge is a pair of tokens and the token that they become.
type merge struct{ left, right, fused int32 }

// mergeReader turns merges of names into merges of ids, a group at a time. Its caller appends the two names of a merge
// to text and calls add, and calls find after the last one.
type mergeReader struct {
	*bpe
	list    []merge
	text    []byte // the names of the group, one after another
	group   []writtenMerge
	lookups []lookup
	fail    func(w writtenMerge, err error) error // makes the error for a merge
}

// writtenMerge is a merge of a group.
type writtenMerge struct {
	begin, split, end int // the offsets of its names in text, and the end of the second one
	number, place     int // what the error for it says
}

// newMergeReader returns a reader of about n merges.
func newMergeReader(b *bpe, n int, fail func(w writtenMerge, err error) error) *mergeReader {
	return &mergeReader{bpe: b, list: make([]merge, 0, n), fail: fail}
}

// add takes the merge at the end of text, whose second name begins at split.
func (r *mergeReader) add(split, number, place int) error {
	w := writtenMerge{split: split, end: len(r.text), number: number, place: place}
	if n := len(r.group); n > 0 {
		w.begin = r.group[n-1].end
	}
	if r.group = append(r.group, w); len(r.group) < group/2 {
		return nil
	}
	return r.find()
}

// find looks up the names of the group, and empties it.
func (r *mergeReader) find() error {
	r.lookups = r.lookups[:0]
	for _, w := range r.group {
		r.lookups = append(r.lookups, lookup{name: r.text[w.begin:w.split]}, lookup{name: r.text[w.split:w.end]})
	}
	r.names.getAll(r.lookups)
	for i, w := range r.group {
		m, err := r.merge(&r.lookups[2*i], &r.lookups[2*i+1], r.text[w.begin:w.end])
		if err != nil {
			return r.fail(w, err)
		}
		r.list = append(r.list, m)
	}
	r.group, r.text = r.group[:0], r.text[:0]
	return nil
}

// merge returns the merge of two tokens whose names are joined, one after the other. In most files a merge makes the token
// that the one before it makes, or the next.
func (r *mergeReader) merge(left, right *lookup, joined []byte) (merge, error) {
	m := merge{left: left.id, right: right.id, fused: -1}
	if m.left < 0 || m.right < 0 {
		return m, fmt.Errorf("%q or %q is not in the vocabulary", left.name, right.name)
	}
	if skip := min(len(r.prefix), len(right.name)); skip > 0 {
		joined = append(append(make([]byte, 0, len(joined)), left.name...), right.name[skip:]...)
	}
	guess := int32(-1)
	if n := len(r.list); n > 0 {
		guess = r.list[n-1].fused
	}
	switch {
	case r.isNamed(guess, joined):
		m.fused = guess
	case guess < r.top && r.isNamed(guess+1, joined):
		m.fused = guess + 1
	default:
		m.fused = r.bytesID(joined)
	}
	if m.fused < 0 {
		return m, fmt.Errorf("%q is not in the vocabulary", joined)
	}
	return m, nil
}
