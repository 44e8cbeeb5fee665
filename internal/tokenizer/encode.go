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
	// AddSpecialTokens adds the tokens of the post-processor around the text (BOS, EOS, …).
	AddSpecialTokens bool
	// SplitSpecial treats special tokens in the text as ordinary text, so that users
	// cannot smuggle them in. Added tokens that are not special are still found.
	SplitSpecial bool
	// MaxTokens, if positive, ends the work with a [TooManyError] as soon as it is certain that the
	// text has more tokens, not counting those of AddSpecialTokens.
	MaxTokens int
	// Stop, if set, is asked again and again; its error ends the work. A context's Err is one.
	Stop func() error
	// Reserve, if set, is called before the work on a long word takes n more bytes of memory,
	// which it holds until the end; its error ends the work. Beyond that EncodeIDs takes a few
	// bytes for each byte of the text, and with it at most 40.
	Reserve func(n int) error
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
// The errors are [ErrTooSlow], [ErrTooLong], [TooManyError], those of opts.Stop and
// opts.Reserve, and faults of the file that only a text brings out. It takes some 140 bytes of
// memory for each byte of a long text; [Tokenizer.EncodeIDs] takes less.
func (t *Tokenizer) Encode(text string, opts EncodeOptions) (Encoding, error) {
	return t.encode(opts, text)
}

// EncodePair encodes two sequences as one, as the file's post-processor joins them.
func (t *Tokenizer) EncodePair(a, b string, opts EncodeOptions) (Encoding, error) {
	return t.encode(opts, a, b)
}

// EncodeIDs is [Tokenizer.Encode] for the ids alone. It is several times faster and takes at
// most 40 bytes of memory for each byte of text.
func (t *Tokenizer) EncodeIDs(text string, opts EncodeOptions) ([]int32, error) {
	f := &t.frames[0]
	if opts.AddSpecialTokens {
		f = &t.frames[1]
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := t.check(text, opts); err != nil {
		return nil, err
	}
	if f.texts != 1 {
		ids, err := t.appendIDs(nil, 0, text, opts)
		return f.fill(ids), err
	}
	ids := make([]int32, f.before(), f.before()+firstIDs(text, opts)+len(f.ids))
	copy(ids, f.ids)
	ids, err := t.appendIDs(ids, f.before(), text, opts)
	return append(ids, f.ids[f.before()+1:]...), err
}

// firstIDs returns how many ids there is memory for at first.
func firstIDs(text string, opts EncodeOptions) int {
	n := len(text)/4 + 8
	if opts.MaxTokens > 0 {
		n = min(n, opts.MaxTokens)
	}
	return n
}

// A frame is the ids that the post-processor puts around those of a text.
type frame struct {
	ids   []int32 // textHere where the text's are
	texts int     // how often they are there
	err   error
}

// textHere marks the place of the text. It is not an id.
const textHere = -1

func (t *Tokenizer) newFrame(special bool) (f frame) {
	parts := []Encoding{{IDs: []int32{textHere}}}
	if t.post != nil {
		parts, f.err = t.post.process(parts, special)
	}
	for _, p := range parts {
		f.ids = append(f.ids, p.IDs...)
	}
	for _, id := range f.ids {
		if id == textHere {
			f.texts++
		}
	}
	return f
}

// before returns the number of ids before those of the text.
func (f *frame) before() int { return slices.Index(f.ids, textHere) }

// fill inserts the ids of a text into the frame.
func (f *frame) fill(ids []int32) (all []int32) {
	for _, id := range f.ids {
		if id == textHere {
			all = append(all, ids...)
		} else {
			all = append(all, id)
		}
	}
	return all
}

func (t *Tokenizer) encode(opts EncodeOptions, texts ...string) (Encoding, error) {
	parts := make([]Encoding, len(texts))
	for i, text := range texts {
		var err error
		if parts[i], err = t.sequence(text, opts); err != nil {
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

// walk is the progress of one text through the pipeline. word receives the added tokens and the
// words between them, in order.
type walk struct {
	t     *Tokenizer
	opts  EncodeOptions
	word  func(piece) error
	sinks []func(piece) error // what each pre-tokenizer emits to
}

// words walks text, which is valid UTF-8, within limits.
func (t *Tokenizer) words(text string, opts EncodeOptions, limits *bounds, track bool, word func(piece) error) error {
	if text == "" {
		return nil
	}
	w := &walk{t: t, opts: opts, word: word}
	for i := range t.pre {
		w.sinks = append(w.sinks, func(p piece) error { return w.pretokenize(i+1, p) })
	}
	p := whole(text, track || t.trackFirst)
	p.bounds = limits
	return t.added.cut(p, &t.added.raw, opts.SplitSpecial, w.normalize)
}

// normalize processes the text between added tokens that match the given text.
func (w *walk) normalize(p piece) error {
	if p.added < 0 && w.t.norm != nil {
		var err error
		if p, err = w.t.norm.normalize(p); err != nil {
			return err
		}
	}
	if p.added >= 0 || len(w.t.added.afterNorm.nodes) == 0 {
		return w.pretokenize(0, p)
	}
	first := func(p piece) error { return w.pretokenize(0, p) }
	return w.t.added.cut(p, &w.t.added.afterNorm, w.opts.SplitSpecial, first)
}

// pretokenize hands p to the pre-tokenizers from the given one on.
func (w *walk) pretokenize(from int, p piece) error {
	switch {
	case p.s == "":
		return nil
	case p.added >= 0 || from == len(w.t.pre):
		return w.word(p)
	}
	return w.t.pre[from].cut(p, w.sinks[from])
}

// valid replaces invalid UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return lossy([]byte(text))
}

// appendIDs appends the ids of text to ids, of which the first ones do not count as the
// text's.
func (t *Tokenizer) appendIDs(ids []int32, first int, text string, opts EncodeOptions) ([]int32, error) {
	text = valid(text)
	limits := t.newBounds(opts, len(text))
	limits.first = first
	ids = slices.Grow(ids, firstIDs(text, opts))
	err := t.words(text, opts, limits, false, func(p piece) error {
		var err error
		if p.added >= 0 {
			ids = append(ids, p.added)
		} else if err = limits.check(t.model, len(ids), p.s); err == nil {
			ids, err = t.model.appendIDs(ids, p.s, limits)
		}
		if err != nil {
			return err
		}
		return limits.check(t.model, len(ids), "")
	})
	return ids, err
}

// sequence encodes text with tokens and offsets.
func (t *Tokenizer) sequence(text string, opts EncodeOptions) (Encoding, error) {
	if err := t.check(text, opts); err != nil {
		return Encoding{}, err
	}
	text = valid(text)
	chars := newCharIndex(text)
	var e Encoding
	var tokens []token
	limits := t.newBounds(opts, len(text))
	err := t.words(text, opts, limits, true, func(p piece) error {
		tokens = tokens[:0]
		if p.added >= 0 {
			tokens = append(tokens, token{p.added, 0, len(p.s), strings.Clone(p.s)})
		} else {
			var err error
			if tokens, err = t.model.appendTokens(tokens, p.s); err != nil {
				return err
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
		return errors.Join(limits.step(), limits.check(t.model, len(e.IDs), ""))
	})
	return e, err
}

// origin returns the place of a token of p in the original text.
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
