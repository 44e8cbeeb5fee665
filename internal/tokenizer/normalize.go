package tokenizer

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// ErrTooLong is returned when the file's normalizers make a text many times longer.
var ErrTooLong = errors.New("tokenizer: the normalizers of tokenizer.json make this text too long")

// normalizer rewrites a piece. The errors are [ErrTooSlow] and [ErrTooLong].
type normalizer interface {
	normalize(p piece) (piece, error)
}

// normalizeFunc is a normalizer that cannot fail. It keeps letters, digits and white space of ASCII,
// but for white space at the ends of a text.
type normalizeFunc func(p piece) piece

func (f normalizeFunc) normalize(p piece) (piece, error) { return f(p), nil }

// unicodeForm is a Unicode normal form.
type unicodeForm norm.Form

func (f unicodeForm) normalize(p piece) (piece, error) { return normalForm(p, norm.Form(f)), nil }

// lowercaser is the function lowercase.
type lowercaser struct{}

func (lowercaser) normalize(p piece) (piece, error) { return lowercase(p), nil }

// spelling is the function byteChars.
type spelling struct{}

func (spelling) normalize(p piece) (piece, error) { return byteChars(p), nil }

// prepender puts itself before a text.
type prepender string

func (s prepender) normalize(p piece) (piece, error) { return prepend(p, string(s)), nil }

// normalizers applies each in turn.
type normalizers []normalizer

func (list normalizers) normalize(p piece) (piece, error) {
	for _, n := range list {
		err := p.bounds.work(len(p.s))
		if err != nil {
			return p, err
		}
		if p, err = n.normalize(p); err != nil {
			return p, err
		}
		if len(p.s) > p.limit {
			return p, ErrTooLong
		}
	}
	return p, nil
}

// replacer puts content in the place of each match.
type replacer struct {
	pattern matcher
	content string
	source  string // of a regular expression
}

func (r replacer) normalize(p piece) (piece, error) {
	if lit, ok := r.pattern.(literal); ok && p.align == nil {
		if n := strings.Count(p.s, string(lit)); len(p.s)+n*len(r.content) > p.limit {
			return p, ErrTooLong
		}
		p.s = strings.ReplaceAll(p.s, string(lit), r.content)
		return p, nil
	}
	var w *rewriter
	err := r.pattern.each(p.s, p.steps(), func(start, end int) error {
		if w == nil {
			w = rewrite(p)
		}
		if len(w.out) <= p.limit {
			w.keep(start)
			w.replace(end, r.content)
		}
		return p.bounds.step()
	})
	if w == nil || err != nil {
		return p, err
	}
	if len(w.out) > p.limit {
		return p, ErrTooLong
	}
	w.keep(len(p.s))
	return w.piece(), nil
}

// stripper removes white space at the ends.
func stripper(left, right bool) normalizeFunc {
	return func(p piece) piece {
		start, end := 0, len(p.s)
		if left {
			start = end - len(strings.TrimLeftFunc(p.s, unicode.IsSpace))
		}
		if right {
			end = start + len(strings.TrimRightFunc(p.s[start:], unicode.IsSpace))
		}
		return p.cut(start, end)
	}
}

// lowercase maps each character alone: no final sigma, and the one character with
// an unconditional two-character form.
func lowercase(p piece) piece {
	const dottedI = '\u0130'
	if !strings.ContainsRune(p.s, dottedI) {
		return mapRunes(p, toLower)
	}
	w := rewrite(p)
	for _, r := range p.s {
		if r == dottedI {
			w.put('i', 0)
			w.put('\u0307', 1)
		} else {
			w.put(toLower(r), 0)
		}
	}
	return w.piece()
}

// stripAccents removes every combining mark; the text should be decomposed before.
func stripAccents(p piece) piece {
	return filter(p, func(r rune) bool { return !isMark(r) })
}

// stripNonSpacing decomposes the text and removes the marks that take no space.
func stripNonSpacing(p piece) piece {
	return filter(normalForm(p, norm.NFD), func(r rune) bool { return !isNonSpacing(r) })
}

// nmt returns the clean-up of neural machine translation's early SentencePiece models:
// controls vanish, odd spaces become spaces.
func nmt(p piece) piece {
	p = filter(p, func(r rune) bool {
		return !(r >= 0x01 && r <= 0x08 || r == 0x0b || r >= 0x0e && r <= 0x1f || r == 0x7f || r == 0x8f || r == 0x9f)
	})
	return mapRunes(p, func(r rune) rune {
		switch {
		case r == 0x09, r == 0x0a, r == 0x0c, r == 0x0d, r == 0x1680, r >= 0x200b && r <= 0x200f,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	})
}

// byteChars rewrites each byte of the text as the byte-level character for it.
func byteChars(p piece) piece {
	w := rewrite(p)
	for i, r := range p.s {
		for k := range utf8.RuneLen(r) {
			w.put(byteToRune(p.s[i+k]), min(k, 1))
		}
	}
	return w.piece()
}

// normalizerSpec is the JSON of any normalizer.
type normalizerSpec struct {
	Type        string
	Normalizers []rawPart
	Prepend     string
	Pattern     patternSpec
	Content     string
	StripLeft   bool `json:"strip_left"`
	StripRight  bool `json:"strip_right"`

	Charsmap     string `json:"precompiled_charsmap"`
	CleanText    *bool  `json:"clean_text"`
	Chinese      *bool  `json:"handle_chinese_chars"`
	StripAccents *bool  `json:"strip_accents"`
	Lowercase    *bool
}

// normalizer builds a normalizer from its JSON, nil for null.
func (p *parser) normalizer(raw rawPart, path string, depth int) (normalizer, error) {
	var spec normalizerSpec
	if ok, err := p.part(raw, path, depth, &spec); !ok {
		return nil, err
	}
	forms := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}
	if form, ok := forms[spec.Type]; ok {
		return unicodeForm(form), nil
	}
	switch spec.Type {
	case "Sequence":
		list, err := sequence(spec.Normalizers, path, "normalizers", depth, p.normalizer)
		return normalizers(list), err
	case "Lowercase":
		return lowercaser{}, nil
	case "Strip":
		return stripper(spec.StripLeft, spec.StripRight), nil
	case "StripAccents":
		return normalizeFunc(stripAccents), nil
	case "Nmt":
		return normalizeFunc(nmt), nil
	case "ByteLevel":
		return spelling{}, nil
	case "Prepend":
		return prepender(spec.Prepend), nil
	case "BertNormalizer":
		lower := either(spec.Lowercase, true)
		return bertNormalizer{either(spec.CleanText, true), either(spec.Chinese, true), either(spec.StripAccents, lower), lower}, nil
	case "Precompiled":
		if spec.Charsmap == "" {
			return nil, nil
		}
		return parsePrecompiled(spec.Charsmap, path)
	case "Replace":
		p.patterns++
		m, err := spec.Pattern.compile(path)
		return replacer{m, spec.Content, either(spec.Pattern.Regex, "")}, err
	}
	return nil, unsupported(path, "normalizer", spec.Type, "NFC NFD NFKC NFKD Lowercase Strip StripAccents Nmt ByteLevel Prepend Replace BertNormalizer Precompiled Sequence")
}
