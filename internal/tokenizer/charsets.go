package tokenizer

import (
	_ "embed" // for unicode.txt
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// unicodeSets says which characters the reference's parts take for what: each of
// them has the Unicode tables of another year, and Go has its own.
//
//go:embed unicode.txt
var unicodeSets string

// charsets has the sets of unicode.txt by name.
var charsets = sync.OnceValue(func() map[string]ranges {
	sets := map[string]ranges{}
	for line := range strings.Lines(unicodeSets) {
		name, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || name == "token-lowercase" || name == "token-scripts" || strings.HasPrefix(line, "#") {
			continue
		}
		set := ranges{}
		for field := range strings.FieldsSeq(list) {
			lo, hi, two := strings.Cut(field, "-")
			if !two {
				hi = lo
			}
			set = append(set, runeRange{fromHex(lo), fromHex(hi)})
		}
		sets[name] = set
	}
	return sets
})

func fromHex(s string) rune {
	n, _ := strconv.ParseUint(s, 16, 32) // the file is ours
	return rune(n)
}

// lowerCases maps characters to lower case as unicode.txt defines it.
var lowerCases = sync.OnceValue(func() map[rune]rune {
	_, list, _ := strings.Cut(unicodeSets, "\ntoken-lowercase: ")
	list, _, _ = strings.Cut(list, "\n")
	to := map[rune]rune{}
	for field := range strings.FieldsSeq(list) { // lo-hi/step+shift
		lo, rest, _ := strings.Cut(field, "-")
		hi, rest, _ := strings.Cut(rest, "/")
		step, _ := strconv.Atoi(rest[:1])
		shift, _ := strconv.Atoi(rest[1:])
		for r := fromHex(lo); r <= fromHex(hi) && step > 0; r += rune(step) {
			to[r] = r + rune(shift)
		}
	}
	return to
})

// union joins sets of unicode.txt.
func union(names ...string) ranges {
	var out ranges
	for _, name := range names {
		out = append(out, charsets()[name]...)
	}
	return out.sorted()
}

// alphabetic returns the property of that name.
func alphabetic() ranges { return union("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "other-alpha") }

// wordChars returns \w in brackets: Alphabetic, Mark, Decimal_Number and
// Connector_Punctuation.
func wordChars() ranges { return append(alphabetic(), union("Mn", "Mc", "Me", "Nd", "Pc")...).sorted() }

// kinds are the sets that are queried character by character.
type kinds struct {
	word, punct, number, mark, nonSpacing, control, decomposed *runeSet
}

var charKinds = sync.OnceValue(func() *kinds {
	set := func(name string) *runeSet { return charsets()[name].compile() }
	return &kinds{
		word:  append(wordChars(), runeRange{0x200c, 0x200d}).compile(), // with Join_Control
		punct: set("token-punct"), number: set("token-number"), mark: set("token-mark"),
		nonSpacing: set("token-nonspacing"), control: set("token-control"), decomposed: set("token-decomposed"),
	}
})

// isWord reports whether r is part of a word for AddedToken.SingleWord and the
// Whitespace pre-tokenizer.
func isWord(r rune) bool { return charKinds().word.has(r) }

// isPunct reports whether r is punctuation in the reference: category P or an ASCII symbol.
func isPunct(r rune) bool { return charKinds().punct.has(r) }

// isNumber reports whether r is of category N.
func isNumber(r rune) bool { return charKinds().number.has(r) }

// isMark reports whether r is of category M.
func isMark(r rune) bool { return charKinds().mark.has(r) }

// isNonSpacing reports whether r is of category Mn.
func isNonSpacing(r rune) bool { return charKinds().nonSpacing.has(r) }

// isDropped reports whether BERT's clean-up removes r: controls that are not white
// space, U+0000 and U+FFFD.
func isDropped(r rune) bool { return charKinds().control.has(r) }

// toLower returns the lower case of r if that is one character, else r.
func toLower(r rune) rune {
	if r < utf8.RuneSelf {
		return unicode.ToLower(r)
	}
	if to, ok := lowerCases()[r]; ok {
		return to
	}
	return r
}
