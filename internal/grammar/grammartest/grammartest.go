// Package grammartest has what tests of grammars share: a [Matcher] is a grammar or an automaton
// over bytes, [Match] tries texts that it should match and texts that it should not, and [Bytes]
// and [Tokens] are tokenizers.
package grammartest

import "testing"

// A Matcher is a grammar or an automaton.
type Matcher interface{ Match(text string) bool }

// Match reports the texts of yes that m does not match, and those of no that it does. name says
// which grammar m is.
func Match(t testing.TB, name string, m Matcher, yes, no []string) {
	t.Helper()
	for _, s := range yes {
		if !m.Match(s) {
			t.Errorf("%s does not match %q", name, s)
		}
	}
	for _, s := range no {
		if m.Match(s) {
			t.Errorf("%s matches %q", name, s)
		}
	}
}

// Bytes is a tokenizer with a token for each byte.
type Bytes struct{}

// VocabSize is the number of bytes.
func (Bytes) VocabSize() int { return 256 }

// TokenBytes returns the byte.
func (Bytes) TokenBytes(id int32) ([]byte, bool) { return []byte{byte(id)}, true }

// IsSpecial reports that none is special.
func (Bytes) IsSpecial(int32) bool { return false }

// Decode joins the bytes.
func (Bytes) Decode(ids []int32, _ bool) string {
	text := make([]byte, len(ids))
	for i, id := range ids {
		text[i] = byte(id)
	}
	return string(text)
}

// Tokens is a tokenizer of a few texts.
type Tokens []string

// VocabSize is the number of texts.
func (t Tokens) VocabSize() int { return len(t) }

// TokenBytes returns a text.
func (t Tokens) TokenBytes(id int32) ([]byte, bool) { return []byte(t[id]), true }

// IsSpecial reports that none is special.
func (Tokens) IsSpecial(int32) bool { return false }

// Decode joins texts.
func (t Tokens) Decode(ids []int32, _ bool) (s string) {
	for _, id := range ids {
		s += t[id]
	}
	return s
}
