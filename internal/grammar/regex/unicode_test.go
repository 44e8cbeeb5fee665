package regex_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/regex"
)

// TestRepeatedUnicodePropertiesAreNotTooLarge: \p{L}+ has the budget of one grammar several times, and its automaton
// accepts exactly the letters.
func TestRepeatedUnicodePropertiesAreNotTooLarge(t *testing.T) {
	budget := &dfa.Budget{Steps: 300_000_000, States: 1 << 16}
	for _, x := range []string{`^[\p{L}\p{N}]+$`, `\p{L}{1,10}`, `\P{L}+`, `[^\p{L}]*`, `\p{L}+( \p{L}+)*`} {
		if _, err := regex.Text(x, budget); err != nil {
			t.Fatalf("%s: %v", x, err)
		}
	}
	d, err := regex.Text(`^\p{L}+$`, budget)
	if err != nil {
		t.Fatal(err)
	}
	for r := rune(0); r <= dfa.MaxRune; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		if got, want := d.Match(string(r)), unicode.Is(unicode.L, r); got != want {
			t.Fatalf("%U: got %v, want %v", r, got, want)
		}
	}
	if !d.Match("Größe") || d.Match("a b") || d.Match("") {
		t.Error("\\p{L}+ does not match words")
	}
}

// TestClassesOfBothCasesAreBounded: folding those of one expression of 30 KB took minutes, which no budget counted.
func TestClassesOfBothCasesAreBounded(t *testing.T) {
	src := "(?i)" + strings.Repeat(`\W`, 10_000)
	if _, err := regex.Text(src, &dfa.Budget{Steps: 1_000_000, States: 1 << 12}); err == nil || !strings.Contains(err.Error(), "both cases") {
		t.Errorf("got %v, want an error of the classes", err)
	}
	if _, err := regex.Text(`(?i)\W{3}[a-zé]+`, &dfa.Budget{Steps: 300_000_000, States: 1 << 16}); err != nil {
		t.Error(err)
	}
}
