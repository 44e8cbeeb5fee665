package dispatch

import (
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A HiddenMode selects the hidden states that a forward pass returns for a row. They are taken
// after the final norm. Embeddings are computed from them.
type HiddenMode uint8

// The hidden modes.
const (
	HiddenNone  HiddenMode = iota
	HiddenFirst            // the state of the row's first token
	HiddenLast             // the state of its last token
	HiddenAll              // the states of all tokens, in their order
	HiddenSum              // BatchRow.Sum plus the states of all tokens, added in their order
)

// hidden collects the hidden states that a pass returns.
type hidden struct {
	rows   []int32 // of the pass
	sums   []nn.Sum
	places []place // of each batch row
	width  int
	normed []float32 // the results for rows and sums
	summed []float32
}

// A place says where the hidden state of a batch row is: in rows or in sums. at is -1 if the row
// requested none.
type place struct {
	sum bool
	at  int
	n   int // states, one after the other
}

func (h *hidden) reset() { h.rows, h.sums, h.places = h.rows[:0], h.sums[:0], h.places[:0] }

// add records the hidden states that a batch row requests. Its tokens are the rows of the pass
// from first on.
func (h *hidden) add(r *BatchRow, first int) {
	at := place{at: len(h.rows), n: 1}
	switch n := len(r.Tokens); r.Hidden {
	case HiddenFirst:
		h.rows = append(h.rows, int32(first))
	case HiddenLast:
		h.rows = append(h.rows, int32(first+n-1))
	case HiddenAll:
		at.n = n
		for i := range n {
			h.rows = append(h.rows, int32(first+i))
		}
	case HiddenSum:
		at = place{sum: true, at: len(h.sums), n: 1}
		h.sums = append(h.sums, nn.Sum{RowRange: meta.RowRange{Begin: first, End: first + n}, From: r.Sum})
	default:
		at.at = -1
	}
	h.places = append(h.places, at)
}

// take copies the results of a pass.
func (h *hidden) take(m *Model) (err error) {
	c := m.last()
	if len(h.rows) > 0 {
		h.width = c.Normed().Cols()
		if h.normed, err = m.read(c.Normed(), &m.stations.normed); err != nil {
			return err
		}
	}
	if len(h.sums) > 0 {
		h.width = c.Sums().Cols()
		h.summed, err = m.read(c.Sums(), &m.stations.sums)
	}
	return err
}

// Hidden returns the hidden states that batch row i requested with [BatchRow].Hidden. This is one
// state, or with HiddenAll the states of all tokens in their order. It returns nil if the row
// requested none, and panics if the batch has no row i.
func (l *Logits) Hidden(i int) []float32 {
	if l.rows != nil {
		if len(l.rows[i].hidden) == 0 {
			return nil
		}
		return l.rows[i].hidden
	}
	h := &l.hidden
	at, from := h.places[i], h.normed
	if at.at < 0 {
		return nil
	}
	if at.sum {
		from = h.summed
	}
	return from[at.at*h.width : (at.at+at.n)*h.width]
}
