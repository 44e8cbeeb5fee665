package dispatch

import "context"

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
