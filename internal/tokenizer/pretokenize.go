package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// preTokenizer cuts a piece into words and emits them in order; empty ones do not
// count. The errors are [ErrTooSlow] and emit's, which ends the work.
type preTokenizer interface {
	cut(p piece, emit func(piece) error) error
}

// splitter cuts at the matches of a pattern.
type splitter struct {
	pattern matcher
	how     behavior
	invert  bool
	spaces  bool // removes white space alone
}

func (s splitter) cut(p piece, emit func(piece) error) error {
	return split(p, s.pattern, s.how, s.invert, emit)
}

// gpt2Pattern is the pattern of the ByteLevel pre-tokenizer.
const gpt2Pattern = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteLevel spells each byte as a character. With raw set the model does that
// itself and words keep the bytes of the text.
type byteLevel struct {
	prefixSpace bool
	pattern     *regex // nil: no split
	raw         bool
}

func (b *byteLevel) cut(p piece, emit func(piece) error) error {
	if b.prefixSpace && !strings.HasPrefix(p.s, " ") {
		p = prepend(p, " ")
	}
	word := emit
	if !b.raw {
		word = func(p piece) error { return emit(byteChars(p)) }
	}
	if b.pattern == nil {
		return word(p)
	}
	return isolate(p, b.pattern, word)
}

// metaspace replaces spaces by another character and may insert one before the text.
type metaspace struct {
	mark    string
	prepend prependScheme
	split   bool
}

type prependScheme uint8

const (
	prependAlways prependScheme = iota
	prependFirst
	prependNever
)

func (m *metaspace) cut(p piece, emit func(piece) error) error {
	p, err := replacer{pattern: literal(" "), content: m.mark}.normalize(p)
	if err != nil {
		return err
	}
	if m.prepend == prependAlways || m.prepend == prependFirst && p.first {
		if !strings.HasPrefix(p.s, m.mark) {
			p = prepend(p, m.mark)
		}
	}
	if m.split {
		return split(p, literal(m.mark), mergedWithNext, false, emit)
	}
	return emit(p)
}

// fixedLength cuts after each n characters.
type fixedLength int

func (n fixedLength) cut(p piece, emit func(piece) error) error {
	start, count := 0, 0
	for i := range p.s {
		if count == int(n) {
			if err := emit(p.cut(start, i)); err != nil {
				return err
			}
			start, count = i, 0
		}
		count++
	}
	return emit(p.cut(start, len(p.s)))
}

// preTokenizerSpec is the JSON of any pre-tokenizer.
type preTokenizerSpec struct {
	Type             string
	Pretokenizers    []rawPart
	Pattern          patternSpec
	Behavior         string
	Invert           bool
	IndividualDigits bool   `json:"individual_digits"`
	AddPrefixSpace   *bool  `json:"add_prefix_space"`
	UseRegex         *bool  `json:"use_regex"`
	Replacement      string // Metaspace
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool
	Delimiter        string
	Length           int
}

// preTokenizers builds the list of pre-tokenizers of a JSON part, Sequences laid
// flat; it is empty for null.
func (p *parser) preTokenizers(raw rawPart, path string, depth int) ([]preTokenizer, error) {
	var spec preTokenizerSpec
	if ok, err := p.part(raw, path, depth, &spec); !ok {
		return nil, err
	}
	if spec.Type == "Sequence" {
		var list []preTokenizer
		for i, raw := range spec.Pretokenizers {
			more, err := p.preTokenizers(raw, index(path, "pretokenizers", i), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		return list, nil
	}
	if spec.Type == "BertPreTokenizer" {
		return []preTokenizer{
			splitter{pattern: runeMatcher(unicode.IsSpace), how: removed, spaces: true},
			splitter{pattern: runeMatcher(isPunct), how: isolated},
		}, nil
	}
	p.patterns++
	one, err := spec.build(path)
	if err != nil {
		return nil, err
	}
	return []preTokenizer{one}, nil
}

func (spec *preTokenizerSpec) build(path string) (preTokenizer, error) {
	switch spec.Type {
	case "ByteLevel":
		b := &byteLevel{prefixSpace: either(spec.AddPrefixSpace, true)}
		var err error
		if either(spec.UseRegex, true) {
			b.pattern, err = compileRegex(gpt2Pattern)
		}
		return b, err
	case "Metaspace":
		return spec.metaspace(path)
	case "Split":
		m, err := spec.Pattern.compile(path)
		if err != nil {
			return nil, err
		}
		how, err := parseBehavior(spec.Behavior, path)
		return splitter{pattern: m, how: how, invert: spec.Invert}, err
	case "Digits":
		how := contiguous
		if spec.IndividualDigits {
			how = isolated
		}
		return splitter{pattern: runeMatcher(isNumber), how: how}, nil
	case "Punctuation":
		how, err := isolated, error(nil)
		if spec.Behavior != "" {
			how, err = parseBehavior(spec.Behavior, path)
		}
		return splitter{pattern: runeMatcher(isPunct), how: how}, err
	case "Whitespace":
		re, err := compileRegex(`[\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+`)
		return splitter{pattern: re, how: removed, invert: true, spaces: true}, err
	case "WhitespaceSplit":
		return splitter{pattern: runeMatcher(unicode.IsSpace), how: removed, spaces: true}, nil
	case "CharDelimiterSplit":
		r, err := oneRune(spec.Delimiter, path+".delimiter")
		return splitter{pattern: runeMatcher(func(c rune) bool { return c == r }), how: removed}, err
	case "UnicodeScripts":
		return scripts{}, nil
	case "FixedLength":
		return fixedLength(max(spec.Length, 1)), nil
	}
	return nil, unsupported(path, "pre-tokenizer", spec.Type, "ByteLevel Metaspace Split Digits Punctuation "+
		"Whitespace WhitespaceSplit BertPreTokenizer CharDelimiterSplit UnicodeScripts FixedLength Sequence")
}

func (spec *preTokenizerSpec) metaspace(path string) (*metaspace, error) {
	mark, scheme, err := metaspaceMark(spec.Replacement, spec.PrependScheme, spec.AddPrefixSpace, path)
	return &metaspace{string(mark), scheme, either(spec.Split, true)}, err
}

// metaspaceMark reads the settings that the Metaspace pre-tokenizer and decoder share. Files older
// than prepend_scheme have add_prefix_space.
func metaspaceMark(mark, scheme string, prefix *bool, path string) (rune, prependScheme, error) {
	r, err := oneRune(mark, path+".replacement")
	if err != nil || r == utf8.RuneError {
		return r, 0, err
	}
	switch strings.ToLower(scheme) {
	case "":
		if !either(prefix, true) {
			return r, prependNever, nil
		}
		return r, prependAlways, nil
	case "always":
		return r, prependAlways, nil
	case "first":
		return r, prependFirst, nil
	case "never":
		return r, prependNever, nil
	}
	return r, 0, unsupported(path, "prepend_scheme", scheme, "always first never")
}
