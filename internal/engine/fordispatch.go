package engine

import (
	"context"
	"errors"

	"github.com/heftai/heft/dispatch"
)

// ForDispatch makes a Model of m, which nobody else runs while the engine does.
func ForDispatch(m *dispatch.Model) Model { return &dispatched{Model: m} }

// dispatched puts dispatch's types in the place of the engine's.
type dispatched struct {
	*dispatch.Model
	batch dispatch.Batch
}

// Limits are the model's. It returns logits of as many rows as sequences, at least.
func (d *dispatched) Limits() Limits {
	tokens, sequences := d.Model.Limits()
	return Limits{Tokens: tokens, Sequences: sequences, LogitRows: sequences}
}

func (d *dispatched) KV() KV {
	u := d.Model.KV()
	return KV{PageTokens: u.PageTokens, Pages: u.Pages, Used: u.Used, Cached: u.Cached,
		Queries: u.PrefixQueries, Hits: u.PrefixHits, Capacity: u.Capacity}
}

func (d *dispatched) NewSequence(promptLen int) Sequence {
	return &dispatchedSequence{Sequence: d.Model.NewSequence(), prompt: promptLen}
}

func (d *dispatched) NewAdaptedSequence(promptLen int, name string) (Sequence, error) {
	s, err := d.Model.NewAdaptedSequence(name)
	if err != nil {
		return nil, err
	}
	return &dispatchedSequence{Sequence: s, prompt: promptLen}, nil
}

func (d *dispatched) Forward(ctx context.Context, rows []Row) (Logits, error) {
	d.batch.Rows = d.batch.Rows[:0]
	for _, r := range rows {
		d.batch.Rows = append(d.batch.Rows, dispatch.Row{
			Sequence:  r.Sequence.(*dispatchedSequence).Sequence,
			Tokens:    r.Tokens,
			PromptLen: r.PromptLen,
			Logits:    dispatch.LogitsMode(r.Logits),
			Hidden:    dispatch.HiddenMode(r.Hidden),
			Sum:       r.Sum,
		})
	}
	logits, err := d.Model.Forward(ctx, &d.batch)
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// dispatchedSequence knows the length of its prompt, which dispatch learns from the
// first call: from Reuse, or else from a reservation of just as many tokens.
type dispatchedSequence struct {
	*dispatch.Sequence
	prompt int
	known  bool
}

func (s *dispatchedSequence) Reuse(prompt []int32) int {
	s.known = true
	return s.Sequence.Reuse(prompt)
}

func (s *dispatchedSequence) Reserve(n int) error {
	var err error
	if !s.known {
		s.known = true
		err = s.Sequence.Reserve(s.prompt)
	}
	if err == nil {
		err = s.Sequence.Reserve(n)
	}
	if errors.Is(err, dispatch.ErrKVFull) {
		return ErrKVFull
	}
	return err
}
