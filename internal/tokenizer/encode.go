package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// EncodeOptions says how to encode. The zero value encodes the text alone and finds
// special tokens in it.
type EncodeOptions struct {
	// AddSpecialTokens adds what the post-processor puts around a text (BOS, EOS, …).
	AddSpecialTokens bool
	// SplitSpecial treats special tokens in the text as ordinary text, so that users
	// cannot smuggle them in. Added tokens that are not special are still found.
	SplitSpecial bool
}

// Encoding is an encoded text. All slices have the same length.
type Encoding struct {
	IDs []int32
	// Tokens are the vocabulary's names, or the text itself where a token stands for
	// an unknown stretch.
	Tokens []string
	// Offsets are half-open ranges of code points of the text; [0 0] for tokens that
	// were added around it.
	Offsets [][2]int
	// TypeIDs tell the two sequences of a pair apart, as the file says.
	TypeIDs []int32
}

func (e *Encoding) clone() Encoding {
	return Encoding{slices.Clone(e.IDs), slices.Clone(e.Tokens), slices.Clone(e.Offsets), slices.Clone(e.TypeIDs)}
}

// Encode turns text into tokens with their places. Invalid UTF-8 counts as U+FFFD.
// The errors are [ErrTooSlow] and faults of the file that only a text brings out.
func (t *Tokenizer) Encode(text string, opts EncodeOptions) (Encoding, error) {
	return t.encode(opts, true, text)
}

// EncodePair encodes two sequences as one, as the file's post-processor joins them.
func (t *Tokenizer) EncodePair(a, b string, opts EncodeOptions) (Encoding, error) {
	return t.encode(opts, true, a, b)
}

// EncodeIDs is [Tokenizer.Encode] for the ids alone, which is several times faster.
func (t *Tokenizer) EncodeIDs(text string, opts EncodeOptions) ([]int32, error) {
	if t.post == nil {
		return t.appendIDs(nil, text, opts)
	}
	e, err := t.encode(opts, false, text)
	return e.IDs, err
}

func (t *Tokenizer) encode(opts EncodeOptions, full bool, texts ...string) (Encoding, error) {
	parts := make([]Encoding, len(texts))
	for i, text := range texts {
		var err error
		if full {
			parts[i], err = t.sequence(text, opts)
		} else {
			parts[i].IDs, err = t.appendIDs(nil, text, opts)
		}
		if err != nil {
			return Encoding{}, err
		}
		parts[i].TypeIDs = make([]int32, len(parts[i].IDs))
		parts[i].setType(int32(i))
	}
	if t.post != nil {
		var err error
		if parts, err = t.post.process(parts, opts.AddSpecialTokens); err != nil {
			return Encoding{}, err
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	var all Encoding
	for _, p := range parts {
		all.IDs = append(all.IDs, p.IDs...)
		all.Tokens = append(all.Tokens, p.Tokens...)
		all.Offsets = append(all.Offsets, p.Offsets...)
		all.TypeIDs = append(all.TypeIDs, p.TypeIDs...)
	}
	return all, nil
}

// walk is one text's way through the pipeline: word gets the added tokens and the
// words of what lies between them, in order.
type walk struct {
	t     *Tokenizer
	opts  EncodeOptions
	word  func(piece)
	sinks []func(piece) // what each pre-tokenizer emits to
	err   error
}

// words walks text, which is valid UTF-8.
func (t *Tokenizer) words(text string, opts EncodeOptions, track bool, word func(piece)) error {
	if text == "" {
		return nil
	}
	w := &walk{t: t, opts: opts, word: word}
	for i := range t.pre {
		w.sinks = append(w.sinks, func(p piece) { w.pretokenize(i+1, p) })
	}
	w.check(t.added.cut(whole(text, track || t.trackFirst), &t.added.raw, opts.SplitSpecial, w.normalize))
	return w.err
}

// check keeps the first error, after which nothing more is done.
func (w *walk) check(err error) {
	if w.err == nil {
		w.err = err
	}
}

// normalize takes what lies between the added tokens of the text as given.
func (w *walk) normalize(p piece) {
	if p.added < 0 && w.t.norm != nil && w.err == nil {
		var err error
		p, err = w.t.norm.normalize(p)
		w.check(err)
	}
	if p.added >= 0 || len(w.t.added.afterNorm.nodes) == 0 {
		w.pretokenize(0, p)
		return
	}
	first := func(p piece) { w.pretokenize(0, p) }
	w.check(w.t.added.cut(p, &w.t.added.afterNorm, w.opts.SplitSpecial, first))
}

// pretokenize hands p to the pre-tokenizers from the given one on.
func (w *walk) pretokenize(from int, p piece) {
	switch {
	case w.err != nil || p.s == "":
	case p.added >= 0 || from == len(w.t.pre):
		w.word(p)
	default:
		w.check(w.t.pre[from].cut(p, w.sinks[from]))
	}
}

// valid replaces invalid UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return lossy([]byte(text))
}

func (t *Tokenizer) appendIDs(ids []int32, text string, opts EncodeOptions) ([]int32, error) {
	text = valid(text)
	ids = slices.Grow(ids, len(text)/4+8)
	var failed error
	err := t.words(text, opts, false, func(p piece) {
		if p.added >= 0 {
			ids = append(ids, p.added)
			return
		}
		var err error
		if ids, err = t.model.appendIDs(ids, p.s); err != nil && failed == nil {
			failed = err
		}
	})
	return ids, errors.Join(err, failed)
}

// sequence encodes text with tokens and offsets.
func (t *Tokenizer) sequence(text string, opts EncodeOptions) (Encoding, error) {
	text = valid(text)
	chars := newCharIndex(text)
	var e Encoding
	var tokens []token
	var failed error
	err := t.words(text, opts, true, func(p piece) {
		tokens = tokens[:0]
		if p.added >= 0 {
			tokens = append(tokens, token{p.added, 0, len(p.s), strings.Clone(p.s)})
		} else {
			var err error
			if tokens, err = t.model.appendTokens(tokens, p.s); err != nil && failed == nil {
				failed = err
			}
		}
		for _, tok := range tokens {
			name := tok.text
			if name == "" {
				name, _ = t.model.token(tok.id)
			}
			e.IDs = append(e.IDs, tok.id)
			e.Tokens = append(e.Tokens, name)
			e.Offsets = append(e.Offsets, chars.chars(p.origin(tok)))
		}
	})
	return e, errors.Join(err, failed)
}

// origin is where a token of p lies in the original text.
func (p *piece) origin(t token) span {
	switch {
	case t.end > len(p.align):
		return span{t.start, t.end}
	case t.start >= t.end:
		if len(p.align) == 0 {
			return span{}
		}
		return span{p.align[0].start + t.start, p.align[0].start + t.end}
	}
	return span{p.align[t.start].start, p.align[t.end-1].end}
}
