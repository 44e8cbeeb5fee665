package tokenizer

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Tokenizers that make one token of unknown text of any length have no bound by length alone. Two
// others are certain for them. They read the text once and allocate nothing.
//
// A Unigram or BPE model has a token for most letters of ASCII and for many of other scripts, and
// covers them with tokens of its vocabulary, of which the longest is known. So their bytes are
// counted. They are in runs: a normalizer changes such a letter only with a combining mark behind it.
// Letters without a token do not count: any number of them is one unknown token.
//
// A WordPiece model makes one unknown token of a word, but of no two words. So the words between
// ASCII white space are counted. One word of any length fits any context: no bound can refuse it.

// runBound counts letters, and digits of ASCII, in bytes.
type runBound struct {
	perToken int       // how many bytes of them a token covers at most; 0: there is no bound
	counts   [128]bool // those of ASCII that are covered by the vocabulary's tokens
	letters  *runeSet  // those beyond ASCII, see [Tokenizer.newLetters]; nil for none
	lose     int       // bytes at the end of a run that may vanish, see endsPlainly
}

// least returns a number of tokens that text has for certain.
func (b *runBound) least(text string) int {
	if b.perToken == 0 {
		return 0
	}
	letters, counted := 0, 0 // bytes of all runs, and of this one
	for i, size := 0, 1; i < len(text); i, size = i+size, 1 {
		c := text[i]
		if c >= utf8.RuneSelf && b.letters != nil {
			var r rune
			if r, size = utf8.DecodeRuneInString(text[i:]); b.letters.has(r) {
				counted += size
				continue
			}
		}
		switch {
		case isASCIIWord(c):
			if b.counts[c] {
				counted++
			}
		case counted > 0:
			letters += counted - b.lost(text, i, counted)
			counted = 0
		}
	}
	letters += counted - b.lost(text, len(text), counted)
	return letters / b.perToken
}

// lost returns how many of n bytes before text[end:], where a run ends, may vanish.
func (b *runBound) lost(text string, end, n int) int {
	if endsPlainly(text, end) {
		return 0
	}
	return min(n, b.lose)
}

// endsPlainly reports whether the character at text[end:] leaves the character before it unchanged: a mark may
// stand there, after a control that is dropped too, and begin the text after this one.
func endsPlainly(text string, end int) bool {
	return end < len(text) && (text[end] >= ' ' && text[end] < 0x7f || isASCIISpace(text[end]))
}

// wordBound counts words.
type wordBound struct {
	perToken int // how many of them a token covers at most; 0: there is no bound
	lose     int // as of runBound
}

// least returns a number of tokens that text has for certain, less one, as the first word may
// continue one of the text before it.
func (b *wordBound) least(text string) int {
	if b.perToken == 0 {
		return 0
	}
	words, run, sure := 0, 0, false // sure: something of this word stays
	for i := 0; i <= len(text); i++ {
		if i < len(text) && isASCIIWord(text[i]) {
			run++
			continue
		}
		sure = sure || run > b.lose || run > 0 && endsPlainly(text, i)
		run = 0
		if sure && (i == len(text) || isASCIISpace(text[i])) {
			words, sure = words+1, false
		}
	}
	return max(0, words-1) / b.perToken
}

func isASCIIWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isASCIISpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// newRunBound looks at all parts of t.
func (t *Tokenizer) newRunBound() (b runBound) {
	to, steps, ok := keptRuns(t.norm)
	if !ok || !t.keepsWords() {
		return b
	}
	most := 0
	for c := range b.counts {
		if isASCIIWord(byte(c)) {
			if n := t.model.covers(rune(to[c])); n > 0 {
				b.counts[c], most = true, max(most, n)
			}
		}
	}
	letters, widest := t.newLetters()
	if most = max(most, widest); most == 0 {
		return b
	}
	if letters != nil {
		b.letters, steps = letters, steps*utf8.UTFMax
	}
	for i, a := range t.added.tokens {
		most = max(most, len(a.Content), len(t.added.names[i]))
	}
	b.perToken, b.lose = most, steps
	return b
}

// newLetters returns the letters beyond ASCII that are tokens and that text keeps wherever another
// letter follows, and the longest token that may cover one, in bytes. It returns nil if there are none.
func (t *Tokenizer) newLetters() (*runeSet, int) {
	if !sparesLetters(t.norm) || slices.ContainsFunc(t.pre, func(p preTokenizer) bool {
		spelled, ok := p.(*byteLevel)
		_, drops := p.(scripts)
		return drops || ok && !spelled.raw
	}) {
		return nil, 0
	}
	var kept ranges
	most := 0
	for _, token := range t.model.all() {
		r, size := utf8.DecodeRuneInString(token)
		if size != len(token) || r < utf8.RuneSelf || r == utf8.RuneError || !joinsNothing(r) {
			continue
		}
		if n := t.model.covers(r); n > 0 && t.keepsLetter(token) {
			kept, most = append(kept, runeRange{r, r}), max(most, n)
		}
	}
	if kept == nil {
		return nil, 0
	}
	return kept.compile(), most
}

// joinsNothing reports whether r is a letter that joins no letter before it or behind it, neither in a
// normal form nor in a grapheme cluster.
func joinsNothing(r rune) bool {
	jamo := r >= 0x1100 && r <= 0x11ff || r >= 0xa960 && r <= 0xa97f || r >= 0xd7b0 && r <= 0xd7ff
	return unicode.IsLetter(r) && !jamo && !isExtend(r) && !unicode.Is(unicode.Other_Grapheme_Extend, r) &&
		norm.NFC.PropertiesString(string(r)).BoundaryBefore() && norm.NFKC.PropertiesString(string(r)).BoundaryBefore()
}

// keepsLetter reports whether the normalizer leaves a letter between two others as it is.
func (t *Tokenizer) keepsLetter(letter string) bool {
	if t.norm == nil {
		return true
	}
	p, err := t.norm.normalize(piece{s: "a" + letter + "a", limit: 1 << 10})
	return err == nil && strings.Contains(p.s, letter)
}

// sparesLetters reports whether n replaces no letters, digits and marks of any script by a pattern,
// and no character that takes the letter behind it into its grapheme cluster.
func sparesLetters(n normalizer) bool {
	special := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) }
	switch n := n.(type) {
	case normalizers:
		for _, one := range n {
			if !sparesLetters(one) {
				return false
			}
		}
	case replacer:
		if lit, ok := n.pattern.(literal); ok {
			return !strings.ContainsFunc(string(lit), special)
		}
		return !strings.ContainsFunc(n.source, func(r rune) bool { return r >= utf8.RuneSelf && special(r) })
	case *precompiled:
		for _, r := range tables(unicode.Prepended_Concatenation_Mark) {
			for c := r.lo; c <= r.hi; c++ {
				if _, changed := n.transform(string(c)); changed {
					return false
				}
			}
		}
	}
	return true
}

// keepsWords reports whether no pre-tokenizer removes letters or digits.
func (t *Tokenizer) keepsWords() bool {
	for _, pre := range t.pre {
		s, ok := pre.(splitter)
		if _, drops := pre.(scripts); drops || ok && s.how == removed && !s.spaces {
			return false
		}
	}
	return true
}

// newWordBound looks at all parts of t.
func (t *Tokenizer) newWordBound() (b wordBound) {
	_, steps, ok := keptRuns(t.norm)
	if !ok || !keepsSpaces(t.norm) || !t.keepsWords() || len(t.pre) == 0 {
		return b
	}
	if s, ok := t.pre[0].(splitter); !ok || !s.spaces {
		return b
	}
	most := 1
	for i, a := range t.added.tokens {
		most = max(most, len(strings.Fields(a.Content)), len(strings.Fields(t.added.names[i])))
	}
	return wordBound{perToken: most, lose: steps}
}

// keptRuns returns what n makes of letters and digits of ASCII that another one follows, and how
// many at the end of a run may become something else. ok is false if it may drop or join them.
func keptRuns(n normalizer) (to [128]byte, steps int, ok bool) {
	for c := range to {
		to[c] = byte(c)
	}
	switch n := n.(type) {
	case nil, prepender:
		return to, 0, true
	case normalizers:
		for _, one := range n {
			next, more, ok := keptRuns(one)
			if !ok {
				return to, 0, false
			}
			for c := range to {
				to[c] = next[to[c]]
			}
			steps += more
		}
		return to, steps, true
	case normalizeFunc, spelling:
		return to, 0, true
	case unicodeForm:
		return to, 1, true // composed with a mark
	case lowercaser:
		return lowered(to), 0, true
	case bertNormalizer:
		if n.lower {
			to = lowered(to)
		}
		return to, 0, true
	case replacer:
		return to, 0, n.sparesWords()
	case *precompiled:
		return to, 1, n.keeps(isASCIIWord, &to) && n.addsNoMarks()
	}
	return to, 0, false
}

func lowered(to [128]byte) [128]byte {
	for c := 'A'; c <= 'Z'; c++ {
		to[c] = byte(unicode.ToLower(c))
	}
	return to
}

// keeps reports whether p makes one character of that kind of each one, and writes which into to.
func (p *precompiled) keeps(kind func(byte) bool, to *[128]byte) bool {
	for c := range byte(128) {
		if !kind(c) {
			continue
		}
		s, changed := p.transform(string(rune(c)))
		if !changed {
			continue
		}
		if len(s) != 1 || !kind(s[0]) {
			return false
		}
		to[c] = s[0]
	}
	return true
}

// addsNoMarks reports whether nothing of ASCII becomes a combining mark.
func (p *precompiled) addsNoMarks() bool {
	for c := range rune(128) {
		if s, _ := p.transform(string(c)); strings.ContainsFunc(s, unicode.IsMark) {
			return false
		}
	}
	return true
}

// keepsSpaces reports whether white space of ASCII stays white space between words.
func keepsSpaces(n normalizer) bool {
	switch n := n.(type) {
	case nil, prepender, unicodeForm, normalizeFunc, lowercaser, bertNormalizer:
		return true
	case normalizers:
		for _, one := range n {
			if !keepsSpaces(one) {
				return false
			}
		}
		return true
	case *precompiled:
		var to [128]byte
		return n.keeps(isASCIISpace, &to)
	}
	return false
}

// sparePattern is a pattern that matches one or more of one character, neither letter nor digit.
var sparePattern = regexp.MustCompile(`^[^\w\\.^$|?*+()\[\]{}](\+|\{[1-9]\d*(,\d*)?\})?$`)

// sparesWords reports whether r changes no letters and digits of ASCII, nor the text between two of
// them, and adds no combining marks.
func (r replacer) sparesWords() bool {
	if r.content == "" || strings.ContainsFunc(r.content, unicode.IsMark) {
		return false // a mark behind what vanishes joins the letter before it
	}
	if lit, ok := r.pattern.(literal); ok {
		return lit != "" && !strings.ContainsFunc(string(lit), func(c rune) bool { return c < 128 && isASCIIWord(byte(c)) })
	}
	return sparePattern.MatchString(r.source)
}
