package dispatch

import (
	"errors"
	"fmt"
)

var errNoAttention = errors.New("dispatch: forward: the tree has no attention: use Model.Apply")

// check returns an error if m cannot compute b. In a batch that it accepts, each row has a
// sequence of its own that belongs to m.
func (m *Model) check(b *Batch) error {
	if b == nil {
		return errors.New("dispatch: forward: got no batch")
	}
	m.batches++
	for i := range b.Rows {
		if err := m.checkRow(&b.Rows[i]); err != nil {
			return fmt.Errorf("dispatch: row %d: %w", i, err)
		}
		b.Rows[i].Sequence.batch = m.batches
	}
	return nil
}

func (m *Model) checkRow(r *BatchRow) error {
	switch s := r.Sequence; {
	case s == nil:
		return errors.New("got no sequence, want one of Model.NewSequence")
	case s.model != m:
		return errors.New("got a sequence of another model")
	case s.batch == m.batches:
		return errors.New("got the sequence of an earlier row, want one row for each sequence")
	case len(r.Tokens) == 0:
		return errors.New("got no tokens, want at least one")
	case r.PromptLen < 0:
		return fmt.Errorf("got a prompt of %d tokens, want 0 or more", r.PromptLen)
	case r.Logits > LogitsAll:
		return fmt.Errorf("got the logits mode %d, want LogitsNone, LogitsLast or LogitsAll", r.Logits)
	case r.Hidden > HiddenSum:
		return fmt.Errorf("got the hidden mode %d, want one of HiddenNone to HiddenSum", r.Hidden)
	}
	return nil
}

// check returns an error if s cannot take pages.
func (s *Sequence) check() error {
	switch {
	case s.model == nil:
		return errors.New("dispatch: got a sequence without a model, want one of Model.NewSequence")
	case s.model.closed.Load():
		return ErrClosed
	case s.model.cache == nil:
		return errNoAttention
	}
	return nil
}
