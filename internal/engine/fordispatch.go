package engine

import (
	"context"

	"github.com/heftai/heft/dispatch"
)

// ForDispatch returns m as a Model. From then on only the engine may run m.
func ForDispatch(m *dispatch.Model) Model { return &dispatched{Model: m} }

// dispatched converts between dispatch's types and the engine's.
type dispatched struct {
	*dispatch.Model
	batch dispatch.Batch
}

// Limits returns the model's limits. The model returns logits of at least as many rows as
// sequences.
func (d *dispatched) Limits() Limits {
	l := d.BatchLimits()
	return Limits{Tokens: l.Tokens, Sequences: l.Sequences, LogitRows: l.Sequences, States: l.States, Streaming: l.Streaming}
}

// Ready reports whether no weights are being read ahead.
func (d *dispatched) Ready() bool { return !d.Model.Status().Loading.Active() }

func (d *dispatched) KV() KV {
	u := d.Model.KV()
	return KV{PageTokens: u.PageTokens, Pages: u.Pages, Used: u.Used, Cached: u.Cached,
		Queries: u.PrefixQueries, Hits: u.PrefixHits, Capacity: u.Capacity}
}

func (d *dispatched) NewSequence(promptLen int) Sequence {
	s := d.Model.NewSequence()
	s.Expect(promptLen)
	return s
}

func (d *dispatched) Adapted(name string) (NewSequence, error) {
	a, err := d.Model.Adapted(name)
	if err != nil {
		return nil, err
	}
	return func(promptLen int) (Sequence, error) {
		s, err := a.NewSequence()
		if err != nil {
			return nil, err
		}
		s.Expect(promptLen)
		return s, nil
	}, nil
}

func (d *dispatched) Forward(ctx context.Context, rows []Row) (Logits, error) {
	d.batch.Rows = d.batch.Rows[:0]
	for _, r := range rows {
		d.batch.Rows = append(d.batch.Rows, dispatch.BatchRow{
			Sequence:  r.Sequence.(*dispatch.Sequence),
			Tokens:    r.Tokens,
			PromptLen: r.PromptLen,
			Logits:    r.Logits,
			Hidden:    r.Hidden,
			Sum:       r.Sum,
			Before:    r.Before,
		})
	}
	logits, err := d.Model.Forward(ctx, &d.batch)
	if err != nil {
		return nil, err
	}
	return logits, nil
}
