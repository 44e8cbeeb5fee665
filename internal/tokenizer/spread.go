package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// spread has the maximum number of bytes of text per token.
type spread struct {
	bytes  float64 // 0: any number; runs and words are for these tokenizers
	strips bool    // white space does not count, as added tokens may take any of it with them
	runs   runBound
	words  wordBound
}

// LeastTokens returns a number of tokens that text has for certain, without those of
// AddSpecialTokens: its bytes divided by what the longest token stands for. It reads no more
// of text than its length if it can. For tokenizers that drop text or make one token of any
// length of it, it reads the text once and counts letters and words; see runbound.go.
func (t *Tokenizer) LeastTokens(text string) int {
	if t.spread.bytes == 0 {
		return max(t.spread.runs.least(text), t.spread.words.least(text))
	}
	n := len(text)
	if t.spread.strips && n > longWord {
		n = 0
		for i, r := range text {
			if !unicode.IsSpace(r) {
				n = n + max(1, min(utf8.RuneLen(r), len(text)-i))
			}
		}
	}
	return int(float64(n) / t.spread.bytes)
}

// MostBytes is how many bytes a text of n tokens has at most, white space aside; 0 for any number.
func (t *Tokenizer) MostBytes(n int) int { return int(float64(n+1) * t.spread.bytes) }

// check refuses a text that has too many tokens for certain.
func (t *Tokenizer) check(text string, opts EncodeOptions) error {
	if opts.MaxTokens <= 0 {
		return nil
	}
	if n := t.LeastTokens(text); n > opts.MaxTokens {
		return &TooManyError{Max: opts.MaxTokens, AtLeast: n}
	}
	return nil
}

// newSpread looks at all parts of t.
func (t *Tokenizer) newSpread() spread {
	longest, shrinks := t.model.longest(), shrinkage(t.norm)
	if longest == 0 || shrinks == 0 {
		return spread{runs: t.newRunBound(), words: t.newWordBound()}
	}
	for _, pre := range t.pre {
		s, ok := pre.(splitter)
		if _, drops := pre.(scripts); drops || ok && s.how == removed {
			return spread{runs: t.newRunBound(), words: t.newWordBound()}
		}
	}
	s := spread{bytes: float64(longest) * shrinks}
	for _, a := range t.added.tokens {
		s.bytes = max(s.bytes, float64(len(a.Content))*shrinks)
		s.strips = s.strips || a.LStrip || a.RStrip
	}
	return s
}

// How many bytes of a text one byte of its normal form, or of its lower case, stands for at
// most, with room to spare: the Kelvin sign has three and becomes a k of one, and of four
// characters one may be composed.
const (
	canonicalShrink     = 4
	compatibilityShrink = 8
	lowerShrink         = 3
)

// shrinkage returns the maximum number of bytes of a text that become one byte after n. 0 means any
// number.
func shrinkage(n normalizer) float64 {
	switch n := n.(type) {
	case nil:
		return 1
	case normalizers:
		all := 1.0
		for _, one := range n {
			all *= shrinkage(one)
		}
		return all
	case unicodeForm:
		if norm.Form(n) == norm.NFC || norm.Form(n) == norm.NFD {
			return canonicalShrink
		}
		return compatibilityShrink
	case prepender:
		return 1
	case spelling:
		return 1
	case lowercaser:
		return lowerShrink
	case replacer:
		if lit, ok := n.pattern.(literal); ok && n.content != "" {
			return max(1, float64(len(lit))/float64(len(n.content)))
		}
	}
	return 0
}
