package generate

import (
	"context"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// Encode encodes a text. special adds the tokens that the tokenizer puts around a text; a rendered
// conversation already has them. It ends when ctx does. It fails if the length of the text shows
// that it has more tokens than Limit; see [LengthCheck].
func (m *Model) Encode(ctx context.Context, s string, special bool) ([]int32, error) {
	if err := m.NewLengthCheck("prompt").Add(s); err != nil {
		return nil, err
	}
	return m.encode(ctx, s, text.EncodeOptions{AddSpecialTokens: special})
}

// EncodePrompt is Encode for a prompt. It fails as soon as it is certain that the text has more
// tokens than Limit.
func (m *Model) EncodePrompt(ctx context.Context, s string, special bool) ([]int32, error) {
	return m.encode(ctx, s, text.EncodeOptions{AddSpecialTokens: special, MaxTokens: m.Limit()})
}

// EncodePrediction is EncodePrompt for the predicted text of an answer. field is its name in
// errors.
func (m *Model) EncodePrediction(ctx context.Context, s, field string) ([]int32, error) {
	if err := m.NewLengthCheck(field).Add(s); err != nil {
		return nil, err
	}
	ids, err := m.EncodePrompt(ctx, s, false)
	if err != nil {
		return nil, AsError(err, field)
	}
	return ids, nil
}

// EncodeLast is [Model.EncodePrompt], but keeps only the last most tokens of the prompt; 0 keeps
// all. It also keeps the special tokens around the text.
func (m *Model) EncodeLast(ctx context.Context, s string, special bool, most int) ([]int32, error) {
	if most <= 0 {
		return m.EncodePrompt(ctx, s, special)
	}
	ids, err := m.encode(ctx, s, text.EncodeOptions{AddSpecialTokens: special})
	if err != nil || len(ids) <= most {
		return ids, err
	}
	around, err := m.encode(ctx, "", text.EncodeOptions{AddSpecialTokens: special})
	if err != nil {
		return nil, err
	}
	before := 0
	for before < len(around) && around[before] == ids[before] {
		before++
	}
	if len(around) >= most {
		return ids[len(ids)-most:], nil
	}
	copy(ids[len(ids)-most:], around[:before]) // overwrites dropped tokens of the text
	return ids[len(ids)-most:], nil
}

// idBytes is the memory of a token of a prompt until the request is answered.
const idBytes = 8

// listBytes is the memory of a prompt in addition to its ids.
const listBytes = 64

// encode reserves memory in the request's claim: for a long word while it is encoded, and for the
// ids until the request is answered.
func (m *Model) encode(ctx context.Context, s string, o text.EncodeOptions) ([]int32, error) {
	if m.Tokenizer == nil {
		return nil, wire.Invalidf("prompt", "The model %s has no tokenizer: the prompt must be a list of token ids.", m.Name)
	}
	claim := wire.ClaimOf(ctx)
	o.Stop, o.Reserve = ctx.Err, claim.Work
	ids, err := m.Tokenizer.Encode(s, o)
	if err != nil {
		return nil, err
	}
	return ids, claim.Keep(idBytes * len(ids))
}

// CheckIDs returns a *wire.Error if a field has a list of more ids than the context. It only scans
// the text of the request, so that a long list takes no memory.
func (m *Model) CheckIDs(f *wire.Fields, field string) error {
	if n := f.Count(field); n > m.Limit() {
		return AsError(&text.TooManyTokensError{Max: m.Limit(), AtLeast: n}, field)
	}
	return nil
}

// KeepIDs reserves the memory of prompts that the client sent as ids. It is released when the
// request of ctx is answered.
func KeepIDs(ctx context.Context, lists [][]int32) error {
	n := 0
	for _, list := range lists {
		n += listBytes + idBytes*len(list)
	}
	return wire.ClaimOf(ctx).Keep(n)
}

// A LengthCheck rejects texts before they are tokenized if they are certainly too long for the
// context. It uses their lengths in bytes, letters or words.
type LengthCheck struct {
	m     *Model
	field string
	least int
}

// shortPrompt is the number of tokens below which a check is not worth its time.
const shortPrompt = 256

// TextLimit returns the limit of the texts of a body while it is read: a longer text is too long
// for one of models. It is nil if a model accepts texts of any length.
func TextLimit(models []*Model) *wire.TextLimit {
	limit, most := &wire.TextLimit{}, 0
	for _, m := range models {
		if m.Tokenizer == nil {
			return nil
		}
		tokens := max(m.Limit(), shortPrompt)
		bytes := m.Tokenizer.MostBytes(tokens)
		if bytes == 0 {
			return nil
		}
		limit.Bytes, most = max(limit.Bytes, bytes), max(most, tokens)
	}
	limit.Refuse = func(field string, _ int) error {
		return AsError(&text.TooManyTokensError{Max: most, AtLeast: most + 1}, field)
	}
	return limit
}

// NewLengthCheck returns a check for the texts of one field. field is its name in errors.
func (m *Model) NewLengthCheck(field string) *LengthCheck { return &LengthCheck{m: m, field: field} }

// Add adds a text of the prompt. It returns a *wire.Error once the texts certainly have more tokens
// than the context.
func (f *LengthCheck) Add(s string) error {
	if f.m.Tokenizer == nil {
		return nil
	}
	if f.least += f.m.Tokenizer.LeastTokens(s); f.least > shortPrompt && f.least > f.m.Limit() {
		return AsError(&text.TooManyTokensError{Max: f.m.Limit(), AtLeast: f.least}, f.field)
	}
	return nil
}
