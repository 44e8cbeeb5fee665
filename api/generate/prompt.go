package generate

import (
	"context"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// Encode turns a text into ids. special adds the tokens that the tokenizer puts around a text; a
// rendered conversation has them already. It ends when ctx does.
func (m *Model) Encode(ctx context.Context, s string, special bool) ([]int32, error) {
	return m.encode(s, text.EncodeOptions{AddSpecialTokens: special, Stop: ctx.Err})
}

// EncodePrompt is Encode for a prompt. A text of more tokens than Limit is an error as soon as that
// is certain.
func (m *Model) EncodePrompt(ctx context.Context, s string, special bool) ([]int32, error) {
	return m.encode(s, text.EncodeOptions{AddSpecialTokens: special, Stop: ctx.Err, MaxTokens: m.Limit()})
}

func (m *Model) encode(s string, o text.EncodeOptions) ([]int32, error) {
	if m.Tokenizer == nil {
		return nil, wire.Invalidf("prompt", "The model %s has no tokenizer: the prompt must be a list of token ids.", m.Name)
	}
	return m.Tokenizer.Encode(s, o)
}
