package tokenizer

import (
	"slices"
	"strings"
	"sync"
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

// scratch holds the lists of pieces that a text passes through.
type scratch struct{ a, b []piece }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxScratch is how many pieces are kept for the next text.
const maxScratch = 2048

// release gives s back without the texts it held.
func (s *scratch) release() {
	if max(cap(s.a), cap(s.b)) > maxScratch {
		return
	}
	clear(s.a[:cap(s.a)])
	clear(s.b[:cap(s.b)])
	scratches.Put(s)
}

// words cuts text into added tokens and the words of what lies between them.
func (t *Tokenizer) words(s *scratch, text string, opts EncodeOptions, track bool) ([]piece, error) {
	if text == "" {
		return nil, nil
	}
	from, to := s.a[:0], s.b[:0]
	defer func() { s.a, s.b = from, to }()
	track = track || t.trackFirst
	from, err := t.added.cut(from, whole(text, track), &t.added.raw, opts.SplitSpecial)
	if err != nil {
		return nil, err
	}
	step := func(cut func(out []piece, p piece) ([]piece, error)) error {
		to = to[:0]
		for _, p := range from {
			if p.added >= 0 {
				to = append(to, p)
			} else if to, err = cut(to, p); err != nil {
				return err
			}
		}
		from, to = to, from
		return nil
	}
	if t.norm != nil || len(t.added.afterNorm.nodes) > 0 {
		err := step(func(out []piece, p piece) ([]piece, error) {
			if t.norm != nil {
				var err error
				if p, err = t.norm.normalize(p); err != nil {
					return out, err
				}
			}
			return t.added.cut(out, p, &t.added.afterNorm, opts.SplitSpecial)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, pre := range t.pre {
		if err := step(pre.cut); err != nil {
			return nil, err
		}
	}
	return from, nil
}

// valid replaces invalid UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return lossy([]byte(text))
}

func (t *Tokenizer) appendIDs(ids []int32, text string, opts EncodeOptions) ([]int32, error) {
	s := scratches.Get().(*scratch)
	defer s.release()
	text = valid(text)
	words, err := t.words(s, text, opts, false)
	if err != nil {
		return nil, err
	}
	ids = slices.Grow(ids, len(text)/4+8)
	for i := range words {
		if words[i].added >= 0 {
			ids = append(ids, words[i].added)
		} else if ids, err = t.model.appendIDs(ids, words[i].s); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// sequence encodes text with tokens and offsets.
func (t *Tokenizer) sequence(text string, opts EncodeOptions) (Encoding, error) {
	s := scratches.Get().(*scratch)
	defer s.release()
	text = valid(text)
	words, err := t.words(s, text, opts, true)
	if err != nil {
		return Encoding{}, err
	}
	chars := newCharIndex(text)
	var e Encoding
	var tokens []token
	for i := range words {
		w := &words[i]
		tokens = tokens[:0]
		if w.added >= 0 {
			tokens = append(tokens, token{w.added, 0, len(w.s), strings.Clone(w.s)})
		} else if tokens, err = t.model.appendTokens(tokens, w.s); err != nil {
			return Encoding{}, err
		}
		for _, tok := range tokens {
			name := tok.text
			if name == "" {
				name, _ = t.model.token(tok.id)
			}
			e.IDs = append(e.IDs, tok.id)
			e.Tokens = append(e.Tokens, name)
			e.Offsets = append(e.Offsets, chars.chars(w.origin(tok)))
		}
	}
	return e, nil
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
