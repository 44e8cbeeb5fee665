package text

import (
	"errors"
	"sync"

	"github.com/heftai/heft/internal/tokenizer"
)

// A Tokenizer converts text to token ids and back, as defined by a model's tokenizer.json. It does
// not change and is safe for concurrent use. The zero Tokenizer has no tokens, and encoding with it
// is an error. Use [Open], [ReadTokenizer] or [ParseTokenizer] to make one.
type Tokenizer struct{ t *tokenizer.Tokenizer }

var errNoTokens = errors.New("text: the tokenizer has no tokens: make one with text.Open or text.ParseTokenizer")

// noTokens returns the tokenizer with which the zero Tokenizer decodes.
var noTokens = sync.OnceValue(func() *tokenizer.Tokenizer {
	t, err := tokenizer.Parse([]byte(`{"model": {"type": "BPE", "vocab": {}, "merges": []}}`))
	if err != nil {
		panic(err) // the text is a constant
	}
	return t
})

// empty reports whether t has no tokens.
func (t *Tokenizer) empty() bool { return t == nil || t.t == nil }

func (t *Tokenizer) tokens() *tokenizer.Tokenizer {
	if t.empty() {
		return noTokens()
	}
	return t.t
}

// EncodeOptions are the options of encoding. The zero value encodes the text alone and recognises
// special tokens in it.
type EncodeOptions struct {
	// AddSpecialTokens adds the tokens that the model expects around a text, such as a start token.
	// A prompt of [Chat.Render] does not need it.
	AddSpecialTokens bool
	// SplitSpecialTokens encodes special tokens in the text as ordinary text, so that users cannot
	// inject them.
	SplitSpecialTokens bool
	// MaxTokens, if positive, is the maximum number of tokens. Encoding fails with a
	// [*TooManyTokensError] as soon as it is certain that the text has more.
	MaxTokens int
	// Stop, if set, is called regularly while a long text is encoded. Encoding ends with its error.
	// Use a context's Err to cancel.
	Stop func() error
	// Reserve, if set, is called before encoding a long word takes n more bytes of memory, which
	// are held until the end. Encoding ends with its error. Other memory is a few bytes per byte of
	// text; the total is at most 40 bytes per byte of text.
	Reserve func(n int) error
}

func (o EncodeOptions) internal() tokenizer.EncodeOptions {
	return tokenizer.EncodeOptions{AddSpecialTokens: o.AddSpecialTokens, SplitSpecial: o.SplitSpecialTokens, MaxTokens: o.MaxTokens, Stop: o.Stop, Reserve: o.Reserve}
}

// Encode returns the token ids of text. Invalid UTF-8 is encoded as U+FFFD. It returns
// [ErrTooSlow], [ErrTooLong], a [*TooManyTokensError] or the error of o.Stop or o.Reserve.
func (t *Tokenizer) Encode(text string, o EncodeOptions) ([]int32, error) {
	if t.empty() {
		return nil, errNoTokens
	}
	ids, err := t.t.EncodeIDs(text, o.internal())
	return ids, public(err)
}

// LeastTokens returns a lower bound of the number of tokens of text, without encoding it: the bytes
// of text divided by those of the longest token. If the tokenizer drops text, or makes one token of
// a text of any length, the bound counts letters or words, and may be 0.
func (t *Tokenizer) LeastTokens(text string) int { return t.tokens().LeastTokens(text) }

// MostBytes returns an upper bound of the bytes of a text of n tokens, without white space. It is 0
// if there is no bound.
func (t *Tokenizer) MostBytes(n int) int { return t.tokens().MostBytes(n) }

// EncodeSpans is [Tokenizer.Encode] that also returns the span of each token: a half-open range of
// code points in text. A token that was added around the text has the span [0 0]. It takes several
// times as long.
func (t *Tokenizer) EncodeSpans(text string, o EncodeOptions) (ids []int32, spans [][2]int, err error) {
	if t.empty() {
		return nil, nil, errNoTokens
	}
	e, err := t.t.Encode(text, o.internal())
	return e.IDs, e.Offsets, public(err)
}

// Decode returns the text of ids. It leaves out ids that are not in the vocabulary and, with
// skipSpecial, special tokens. Bytes that do not form characters become U+FFFD.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return t.tokens().Decode(ids, skipSpecial)
}

// ID returns the id of a token by its name in the vocabulary.
func (t *Tokenizer) ID(token string) (id int32, ok bool) { return t.tokens().ID(token) }

// Token returns the name of an id in the vocabulary. Byte-level vocabularies spell bytes as
// characters; [Tokenizer.TokenBytes] returns the bytes themselves.
func (t *Tokenizer) Token(id int32) (token string, ok bool) { return t.tokens().Token(id) }

// TokenBytes returns the bytes that id stands for inside a text, which may be a part of a
// character. ok is false if id is not in the vocabulary, or if the bytes depend on neighbouring
// tokens (WordPiece).
func (t *Tokenizer) TokenBytes(id int32) (b []byte, ok bool) { return t.tokens().TokenBytes(id) }

// IsSpecial reports whether id is a special token, such as the one that ends a text.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.tokens().IsSpecial(id) }

// VocabSize returns the largest id plus one. A model may have more logits than that.
func (t *Tokenizer) VocabSize() int { return t.tokens().VocabSize() }

// SpecialTokens returns the special tokens by id.
func (t *Tokenizer) SpecialTokens() map[int32]string {
	special := map[int32]string{}
	for _, a := range t.tokens().AddedTokens() {
		if a.Special {
			special[a.ID] = a.Content
		}
	}
	return special
}

// NewDecoder returns a decoder for one text whose ids arrive one by one. With skipSpecial special
// tokens have no text.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t.tokens().NewStream(skipSpecial)}
}

// A Decoder decodes one text id by id while it is generated. Its joined results equal the result of
// [Tokenizer.Decode]. It never returns a part of a character. It is for use by one goroutine.
// [Tokenizer.NewDecoder] makes one; the zero Decoder is that of the zero Tokenizer.
type Decoder struct{ s *tokenizer.Stream }

// Next adds an id and returns the text that no longer changes; ok is false if there is none yet. In
// a few tokenizers a later id changes earlier text. Next then returns a [*RetractedError], and the
// decoder continues after the text that it has returned.
func (d *Decoder) Next(id int32) (text string, ok bool, err error) {
	text, ok, err = d.stream().Next(id)
	return text, ok, public(err)
}

// Flush ends the text and returns the text that was held back. An unfinished character becomes
// U+FFFD. The decoder can then decode another text.
func (d *Decoder) Flush() string { return d.stream().Flush() }

func (d *Decoder) stream() *tokenizer.Stream {
	if d.s == nil {
		d.s = noTokens().NewStream(false)
	}
	return d.s
}
