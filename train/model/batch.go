package model

import (
	"errors"
	"fmt"
)

// Batch holds sequences of one length. Pad shorter ones at any place with any id, and set Mask.
// Without a Mask, pad at the end and set the labels of padding to tensor.IgnoreIndex.
type Batch struct {
	// IDs are Length token ids for each sequence, one sequence after another.
	IDs []int
	// Labels has one label per id and is not shifted: the loss compares the prediction at a
	// position with the next position's label. nil means IDs.
	Labels []int
	Length int
	// Mask has an entry per id: false means padding. Passes skip padding: no token attends to it,
	// the routers' loss omits it, and it takes no time. nil means that there is no padding.
	Mask []bool
	// Segments has an entry per id, the number of its text within a packed sequence. A text begins
	// where the number changes. Tokens attend only to tokens of their own text. nil means one text
	// per sequence.
	Segments []int
	// Positions has an entry per id, for rotary embeddings and tables of positions. nil counts the
	// tokens of each text from 0, as transformers' generate does from the attention mask. Without
	// Segments, a text begins wherever a position is not the previous one plus 1, as in
	// transformers.
	Positions []int
}

// check returns an error for an invalid batch.
func (m *Model) check(b Batch) error {
	if b.Length < 1 || len(b.IDs)%b.Length != 0 || len(b.IDs) == 0 || b.Labels != nil && len(b.Labels) != len(b.IDs) {
		return fmt.Errorf("model: batch: got %d ids and %d labels, want sequences of %d and a label per id", len(b.IDs), len(b.Labels), b.Length)
	}
	for _, of := range []struct {
		name string
		n    int
	}{{"a mask", len(b.Mask)}, {"segments", len(b.Segments)}, {"positions", len(b.Positions)}} {
		if of.n != 0 && of.n != len(b.IDs) {
			return fmt.Errorf("model: batch: got %s of %d entries for %d ids, want one per id", of.name, of.n, len(b.IDs))
		}
	}
	for i, id := range b.IDs {
		if id < 0 || id >= m.spec.Vocab {
			return fmt.Errorf("model: batch: got id %d at position %d, want one below %d", id, i, m.spec.Vocab)
		}
	}
	for i, p := range b.Positions {
		if !b.padding(i) && (p < 0 || p >= m.spec.Context) {
			return fmt.Errorf("model: batch: got position %d of id %d, want 0 to %d", p, i, m.spec.Context-1)
		}
	}
	switch l := b.layout(); {
	case l.count() == 0:
		return errors.New("model: batch: got padding only, want at least one token")
	case l.longest > m.spec.Context:
		return fmt.Errorf("model: batch: got sequences of %d tokens, want at most %d", l.longest, m.spec.Context)
	}
	return nil
}

// padding reports whether id i is padding.
func (b *Batch) padding(i int) bool { return len(b.Mask) > 0 && !b.Mask[i] }

// begins reports whether a text begins at id i. last is the previous id of the sequence that is not
// padding, or negative if there is none.
func (b *Batch) begins(i, last int) bool {
	switch {
	case last < 0:
		return true
	case len(b.Segments) > 0:
		return b.Segments[i] != b.Segments[last]
	case len(b.Positions) > 0:
		return b.Positions[i] != b.Positions[last]+1
	}
	return false
}

// layout maps the ids of a batch to the rows of a pass, which has no padding and one text after the
// other.
type layout struct {
	ids       int     // of the batch
	rows      []int   // the id of each row; nil if rows and ids are the same
	texts     []text  // in order; together they are all rows
	positions []int32 // of rows; nil if each text counts from 0
	longest   int     // rows of the longest text
	extent    int     // one more than the largest position
}

// text is a run of rows that attend to each other.
type text struct{ first, rows int }

func (b *Batch) layout() *layout {
	l := &layout{ids: len(b.IDs), rows: make([]int, 0, len(b.IDs))}
	last := -1
	for i := range b.IDs {
		if i%b.Length == 0 {
			last = -1
		}
		if b.padding(i) {
			continue
		}
		if b.begins(i, last) {
			l.texts = append(l.texts, text{first: len(l.rows)})
		}
		t := &l.texts[len(l.texts)-1]
		t.rows++
		l.longest = max(l.longest, t.rows)
		l.rows = append(l.rows, i)
		if len(b.Positions) > 0 {
			l.positions = append(l.positions, int32(b.Positions[i]))
			l.extent = max(l.extent, b.Positions[i]+1)
		}
		last = i
	}
	l.extent = max(l.extent, l.longest)
	if len(l.rows) == l.ids {
		l.rows = nil
	}
	return l
}

// count returns the number of rows.
func (l *layout) count() int {
	if l.rows == nil {
		return l.ids
	}
	return len(l.rows)
}

// id returns the id of a row.
func (l *layout) id(row int) int {
	if l.rows == nil {
		return row
	}
	return l.rows[row]
}

// spread converts values per row to values per id. Padding gets zeros.
func (l *layout) spread(x []float32, width int) []float32 {
	if l.rows == nil {
		return x
	}
	out := make([]float32, l.ids*width)
	for r, i := range l.rows {
		copy(out[i*width:][:width], x[r*width:])
	}
	return out
}

// take converts values per id to values per row.
func (l *layout) take(x []float32, width int) []float32 {
	if l.rows == nil {
		return x
	}
	out := make([]float32, len(l.rows)*width)
	for r, i := range l.rows {
		copy(out[r*width:][:width], x[i*width:])
	}
	return out
}

// ignore sets shifted labels to ignored where no token of the same text precedes the label: padding
// predicts nothing, and the last token of a text does not predict the first one of the next.
func (l *layout) ignore(labels []int, length, ignored int) {
	if l.rows != nil {
		tokens := make([]bool, l.ids)
		for _, i := range l.rows {
			tokens[i] = true
		}
		for i := range labels {
			if !tokens[i] {
				labels[i] = ignored
			}
		}
	}
	for _, t := range l.texts {
		if i := l.id(t.first); i%length > 0 {
			labels[i-1] = ignored
		}
	}
}

// textPage is the number of tokens on a page, for texts of several lengths.
const textPage = 64

// pages returns the size and the number of the pages for the keys of all texts. Each text begins a
// page. One page holds a whole text if that wastes little.
func (l *layout) pages() (tokens, n int) {
	if whole := len(l.texts) * l.longest; whole <= l.count()+l.count()/8 {
		return l.longest, len(l.texts)
	}
	tokens = min(l.longest, textPage)
	for _, t := range l.texts {
		n += (t.rows + tokens - 1) / tokens
	}
	return tokens, n
}
