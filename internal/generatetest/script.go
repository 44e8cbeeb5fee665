package generatetest

import (
	"context"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// Script is a fake that always answers the same: the tokens of its script, one after the
// other, and then the last of them for ever. The likeliest id beside each is the next.
type Script struct {
	*enginetest.Model
	Tokens []int32
}

// Forward computes rows, with logits that choose what the script says.
func (s *Script) Forward(ctx context.Context, rows []engine.Row) (engine.Logits, error) {
	if _, err := s.Model.Forward(ctx, rows); err != nil {
		return nil, err
	}
	out := make(scriptLogits, len(rows))
	for i, r := range rows {
		count := 0
		switch r.Logits {
		case engine.LogitsLast:
			count = 1
		case engine.LogitsAll:
			count = len(r.Tokens)
		}
		values := make([]float32, count*s.Vocab())
		for k := range count {
			at := r.Sequence.Len() - count + k + 1 - r.PromptLen
			id := int(s.Tokens[max(min(at, len(s.Tokens)-1), 0)])
			row := values[k*s.Vocab() : (k+1)*s.Vocab()]
			row[id] = 80 // so far above that sampling at temperature 1 never takes another
			row[(id+1)%len(row)] = 50
		}
		out[i] = scriptRow{count, values}
	}
	return out, nil
}

type scriptRow struct {
	count  int
	values []float32
}

type scriptLogits []scriptRow

// Row implements engine.Logits.
func (l scriptLogits) Row(i int) (int, []float32) { return l[i].count, l[i].values }
