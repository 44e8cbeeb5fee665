package dispatch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/internal/sample"
)

// GenerateOptions control how [Model.Generate] chooses tokens. The zero value always chooses the
// most likely token and ends when the context is full.
type GenerateOptions struct {
	MaxTokens         int     // 0: until the context is full
	Temperature       float64 // 0: greedy
	TopK              int     // 0: off
	TopP              float64 // 0: off
	MinP              float64 // 0: off
	RepetitionPenalty float64 // 0: off
	Seed              uint64
	Stop              []int32 // ids that end the text; the one that does is yielded last
	Adapter           string  // the name of one of Options.Adapters; "" means none
}

// Generate yields the tokens that follow prompt as they are computed. It ends after MaxTokens
// tokens, after a stop token, when the context is full, or with an error. Generate frees its
// sequence when the loop ends.
func (m *Model) Generate(ctx context.Context, prompt []int32, o GenerateOptions) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		if err := m.generate(ctx, prompt, o, func(id int32) bool { return yield(id, nil) }); err != nil {
			yield(0, err)
		}
	}
}

func (m *Model) generate(ctx context.Context, prompt []int32, o GenerateOptions, yield func(int32) bool) error {
	if m.closed.Load() {
		return ErrClosed
	}
	params := sample.Params{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP,
		RepetitionPenalty: o.RepetitionPenalty, Stop: o.Stop}
	if err := params.Validate(m.Vocab()); err != nil {
		return err
	}
	if len(prompt) == 0 {
		return errors.New("dispatch: generate: got no prompt, want at least one token")
	}
	if len(prompt) > m.Context() {
		return fmt.Errorf("dispatch: generate: got a prompt of %d tokens, want at most the context of %d", len(prompt), m.Context())
	}
	left := m.Context() - len(prompt)
	if o.MaxTokens > 0 {
		left = min(left, o.MaxTokens)
	}
	s, err := m.NewAdaptedSequence(o.Adapter)
	if err != nil {
		return err
	}
	defer s.Free()
	sampler, source := sample.New(m.Vocab(), m.variant), sample.NewSource(o.Seed, 0)
	logits, err := m.prompt(ctx, s, prompt)
	if err != nil {
		return err
	}
	var generated []int32
	for ; left > 0; left-- {
		id, err := sampler.Next(&params, &source, sample.Step{Prompt: prompt, Generated: generated}, logits)
		if errors.Is(err, sample.ErrNotFinite) {
			err = m.Explain(err)
		}
		if err != nil {
			return err
		}
		generated = append(generated, id)
		if !yield(id) || slices.Contains(o.Stop, id) || left == 1 {
			return nil
		}
		batch := Batch{Rows: []BatchRow{{Sequence: s, Tokens: generated[len(generated)-1:], PromptLen: len(prompt), Logits: LogitsLast}}}
		out, err := m.Forward(ctx, &batch)
		if err != nil {
			return err
		}
		_, logits = out.Row(0)
	}
	return nil
}

// prompt computes a prompt in chunks and returns the logits of its last token.
func (m *Model) prompt(ctx context.Context, s *Sequence, prompt []int32) ([]float32, error) {
	for at := s.Reuse(prompt); ; {
		n := min(m.settings.MaxBatchTokens, len(prompt)-at)
		row := BatchRow{Sequence: s, Tokens: prompt[at : at+n], PromptLen: len(prompt)}
		if at += n; at == len(prompt) {
			row.Logits = LogitsLast
		}
		out, err := m.Forward(ctx, &Batch{Rows: []BatchRow{row}})
		if err != nil {
			return nil, err
		}
		if at == len(prompt) {
			_, logits := out.Row(0)
			return logits, nil
		}
	}
}
