package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/tensor"
)

// pass holds the inputs and results of one forward pass. Its slices are reused.
type pass struct {
	input    nn.Input
	tokens   []int32
	groups   []nn.Group
	states   []backend.StateSpan
	lengths  []int32
	prompts  []bool
	adapters []*nn.Adapter // of each token, where the model has any
	owners   []*adapter    // the same
	adapted  bool          // some token has one
	rows     []int32       // whose logits are wanted
	before   [][]float32   // see BatchRow.Before
	logits   Logits
	hook     ModuleCall
}

// Forward computes one batch and appends each row's tokens to its sequence. It returns
// [ErrKVFull] if the KV cache has too few free pages, a [*WeightError] if weights cannot be read,
// a [*HookError] if a hook fails, and ctx's error if ctx ends. After an error the sequences of
// the batch have their tokens from before the call. A sequence that had to be recomputed may be
// empty.
func (m *Model) Forward(ctx context.Context, b *Batch) (*Logits, error) {
	switch {
	case m.closed.Load():
		return nil, ErrClosed
	case m.cache == nil:
		return nil, errNoAttention
	}
	if err := m.check(b); err != nil {
		return nil, err
	}
	m.measured.begin()
	for i := range b.Rows {
		if err := m.restart(ctx, &b.Rows[i]); err != nil {
			return nil, err
		}
	}
	out, err := m.forward(ctx, b)
	if err == nil {
		m.measured.end(b, len(m.pass.rows) > 0, m.weights.ReadBytes())
		m.hits.passed(m.measured.decoded && m.measured.follows && len(b.Rows) == 1, m.weights.ExpertStats())
		m.keeper.passed()
	}
	return out, err
}

// forward computes the batch.
func (m *Model) forward(ctx context.Context, b *Batch) (*Logits, error) {
	if m.stations.streams.from > 0 {
		return m.forwardParts(ctx, b)
	}
	return m.forwardAlike(ctx, b)
}

// forwardAlike computes a batch whose rows run on the same devices. If the modification time of a
// weight file changed meanwhile, it computes the batch again: the file has the same contents now,
// but may have had others during the pass.
func (m *Model) forwardAlike(ctx context.Context, b *Batch) (*Logits, error) {
	for again := true; again; {
		epoch := m.checkpoint.Epoch()
		err := m.prepare(b)
		if err == nil {
			err = m.resizeActivations(len(m.pass.tokens))
		}
		if err == nil {
			err = m.runUnits(ctx, &m.pass.input)
		}
		if err == nil {
			err = m.takeResults()
		}
		if err == nil {
			err = m.verify()
		}
		if again = err == nil && m.checkpoint.Epoch() != epoch; err != nil || again {
			m.undo(b)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range b.Rows {
		s := b.Rows[i].Sequence
		s.kv.Commit()
		s.tokens = append(s.tokens, b.Rows[i].Tokens...)
		s.length = max(s.length, b.Rows[i].PromptLen, len(s.tokens))
	}
	return &m.pass.logits, nil
}

// takeResults makes the logits and hidden states of a pass readable on the host.
func (m *Model) takeResults() (err error) {
	out := &m.pass.logits
	if out.values, err = m.read(m.last().Logits(), &m.stations.logits); err != nil {
		return err
	}
	return out.hidden.take(m)
}

// verify detects a shard, or a file of converted weights, that was overwritten or truncated
// within its last page. Reading such a mapping does not fault but returns other bytes.
func (m *Model) verify() error {
	if err := m.checkpoint.Unchanged(); err != nil {
		return m.weightError("", err)
	}
	if err := m.weights.SidecarUnchanged(); err != nil {
		return m.weightError("", err)
	}
	if m.changed.Load() != nil {
		m.changed.Store(nil) // what was there is there again
	}
	return nil
}

func (m *Model) undo(b *Batch) {
	for i := range b.Rows {
		if s := b.Rows[i].Sequence; s != nil && s.kv != nil {
			s.kv.Truncate(s.kv.Committed())
		}
	}
}

// prepare lays out the batch and appends its tokens to their sequences.
func (m *Model) prepare(b *Batch) error {
	p := &m.pass
	p.tokens, p.lengths, p.prompts, p.rows = p.tokens[:0], p.lengths[:0], p.prompts[:0], p.rows[:0]
	p.adapters, p.owners, p.adapted, p.before = p.adapters[:0], p.owners[:0], false, p.before[:0]
	for i := range p.groups {
		p.groups[i] = nn.Group{Spans: p.groups[i].Spans[:0], Slots: p.groups[i].Slots[:0]}
	}
	p.logits.first = append(p.logits.first[:0], 0)
	p.logits.hidden.reset()
	if n := b.Tokens(); n == 0 || n > m.settings.MaxBatchTokens || len(b.Rows) > m.settings.MaxSequences {
		return fmt.Errorf("dispatch: got a batch of %d tokens in %d rows, want at most %d tokens in %d rows", n, len(b.Rows),
			m.settings.MaxBatchTokens, m.settings.MaxSequences)
	}
	for i := range b.Rows {
		if err := m.appendRow(&b.Rows[i]); err != nil {
			return fmt.Errorf("dispatch: row %d: %w", i, err)
		}
	}
	// Spans hold pages, which a later row's reservation does not move.
	p.input = nn.Input{Tokens: p.tokens, Groups: p.groups, KV: m.cache.Layers(), Lengths: p.lengths,
		Before: p.before, Logits: p.rows, Normed: p.logits.hidden.rows, Sums: p.logits.hidden.sums}
	if len(m.program.States()) > 0 {
		p.layStates(b)
		p.input.StateSpans, p.input.States = p.states, m.cache.States()
	}
	if m.settings.Precision == PrecisionAuto {
		p.input.Prompts = p.prompts
	}
	if p.adapted {
		p.input.Adapters = p.adapters
	}
	return nil
}

// layStates sets the states that the rows read and write. All rows must have their pages.
func (p *pass) layStates(b *Batch) {
	p.states = p.states[:0]
	first := 0
	for i := range b.Rows {
		r := &b.Rows[i]
		s := r.Sequence.kv.State(r.PromptLen > 0 && r.Sequence.Len() >= r.PromptLen)
		s.First = first
		first += s.Rows
		p.states = append(p.states, s)
	}
}

// appendRow lays out one row after the others.
func (m *Model) appendRow(r *BatchRow) error {
	p, s := &m.pass, r.Sequence
	first, start := len(p.tokens), s.Len()
	total := start + len(r.Tokens)
	if err := m.checkTokens(r, total); err != nil {
		return err
	}
	prompt := r.PromptLen
	if prompt == 0 {
		prompt = total
	}
	if err := s.reserve(len(r.Tokens), prompt); err != nil {
		return err
	}
	if m.pageClass(max(prompt, total), prompt) != s.class {
		s.kv.Seal()
	}
	s.kv.Append(r.Tokens...)
	p.tokens = append(p.tokens, r.Tokens...)
	if len(r.Before) > 0 {
		p.before = append(p.before, r.Before)
	}
	if len(m.adapters) > 0 || m.settings.AdapterMemory > 0 {
		p.adapt(s, len(r.Tokens))
	}
	for at := start; at < total; at++ {
		p.lengths = append(p.lengths, int32(m.ropeLength(at, total, prompt)))
		p.prompts = append(p.prompts, at < prompt)
	}
	for i := range p.groups {
		g := &p.groups[i]
		g.Spans = append(g.Spans, backend.Span{First: first, Rows: len(r.Tokens), Start: start, Pages: s.kv.Pages(i)})
		g.Slots = slices.Grow(g.Slots, len(r.Tokens))[:first+len(r.Tokens)]
		s.kv.Slots(i, g.Slots[first:], start)
	}
	p.logits.hidden.add(r, first)
	return m.want(r, first)
}

func (m *Model) checkTokens(r *BatchRow, total int) error {
	if total > m.settings.Context {
		return fmt.Errorf("got %d tokens, want at most the context of %d", total, m.settings.Context)
	}
	for _, id := range r.Tokens {
		if id < 0 || int(id) >= m.program.Vocab() {
			return fmt.Errorf("token id %d is outside the vocabulary of %d", id, m.program.Vocab())
		}
	}
	return nil
}

// ropeLength returns the length that the rotary frequencies of a token depend on. total is the
// length of its sequence after the pass.
func (m *Model) ropeLength(at, total, prompt int) int {
	length := max(prompt, at+1)
	if length < total && m.program.Restarts(length, total) {
		return total
	}
	return length
}

// want records the tokens of a row whose logits are requested. first is the index of the row's
// first token in the pass.
func (m *Model) want(r *BatchRow, first int) error {
	p := &m.pass
	switch r.Logits {
	case LogitsLast:
		p.rows = append(p.rows, int32(len(p.tokens)-1))
	case LogitsAll:
		for i := range r.Tokens {
			p.rows = append(p.rows, int32(first+i))
		}
	}
	if most := m.settings.Limits().Outputs; len(p.rows) > most {
		return fmt.Errorf("got a pass with logits of more than %d tokens, want at most that: use several passes", most)
	}
	p.logits.first = append(p.logits.first, len(p.rows))
	return nil
}

// runUnits loads and runs one unit after another.
func (m *Model) runUnits(ctx context.Context, in *nn.Input) error {
	if err := m.run.Begin(in); err != nil {
		return err
	}
	if m.stations.of != nil {
		return m.runStations(ctx, in)
	}
	for i, u := range m.program.Units {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.runUnit(i, u, m.run); err != nil {
			return err
		}
	}
	return nil
}

// runUnit loads and runs a unit and calls its hooks, in one of the model's contexts.
func (m *Model) runUnit(i int, u *nn.Unit, run *nn.Context) error {
	if err := m.weights.Acquire(i); err != nil {
		return m.weightError(u.Path, err)
	}
	failed, hook := m.hooked(u, run)
	m.weights.Release()
	if failed != nil {
		return errors.Join(m.unitError(i, u.Path, failed), hook)
	}
	return hook
}

// Apply runs a model without token inputs, such as a tree of your own, on x. x is a matrix of
// shape [len(x)/width, width]. Apply returns the output rows, which are valid until the next
// call.
func (m *Model) Apply(ctx context.Context, x []float32, width int) ([]float32, error) {
	if m.closed.Load() {
		return nil, ErrClosed
	}
	if width < 1 || len(x)%width != 0 {
		return nil, fmt.Errorf("dispatch: input has %d values, want a multiple of %d", len(x), width)
	}
	in := nn.Input{Hidden: tensor.Floats(x, len(x)/width, width)}
	if err := m.runUnits(ctx, &in); err != nil {
		return nil, err
	}
	h := m.last().Hidden()
	values, err := m.read(h, &m.stations.hidden)
	if err != nil {
		return nil, err
	}
	return values[:h.Elements()], nil
}

// restart recomputes a sequence if its cached keys are not valid for the length that it grows to,
// as with longrope. All its earlier tokens are computed again for the new length. The row's own
// tokens follow in the current pass.
func (m *Model) restart(ctx context.Context, r *BatchRow) error {
	s := r.Sequence
	total := max(r.PromptLen, s.Len()+len(r.Tokens))
	if s.Len() == 0 || !m.program.Restarts(s.length, total) {
		return nil
	}
	held := append([]int32(nil), s.tokens...)
	s.Free()
	for at := 0; at < len(held); {
		n := min(m.settings.MaxBatchTokens, len(held)-at)
		chunk := Batch{Rows: []BatchRow{{Sequence: s, Tokens: held[at : at+n], PromptLen: total}}}
		if _, err := m.forward(ctx, &chunk); err != nil {
			s.Free()
			return err
		}
		at += n
	}
	return nil
}
