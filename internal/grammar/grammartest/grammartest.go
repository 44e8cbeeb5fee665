// Package grammartest has what tests of grammars share: a [Matcher] is a grammar or an automaton over
// bytes, and [Match] tries texts that it should match and texts that it should not.
package grammartest

import "testing"

// A Matcher is a grammar or an automaton.
type Matcher interface{ Match(text string) bool }

// Match reports the texts of yes that m does not match, and those of no that it does. name says which
// grammar m is.
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
