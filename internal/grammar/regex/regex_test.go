package regex_test

import (
	"errors"
	"regexp"
	"testing"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
)

func budget() *dfa.Budget { return &dfa.Budget{Steps: 100_000_000, States: 1 << 16} }

var expressions = []string{
	`a|b*c`, `^(cat|dog)s?$`, `[^a-c]{2,3}`, `\d+\.\d{1,2}`, `(?:ab)+?c`, `(?P<x>a)(?<y>b)`, `[\w.-]+@\w+`, `x{`, `[]a]?`, `\u00e9|\x41|\t`, `(a|)`, `.`, `[a\-z]`, `\$\^`, `(?i:aB)c`,
}

// TestTextMatchesAsGoDoes: on expressions that mean the same in both.
func TestTextMatchesAsGoDoes(t *testing.T) {
	texts := []string{"", "a", "b", "c", "bbc", "cat", "dogs", "xyz", "xy", "1.25", "12.3", "ababc", "abc", "ab", "a@b", "é", "A", "\t", "\n", "-", "z", "$^", "ABc", "aBC", "x{", "a{,2}"}
	for _, src := range expressions {
		if src == `[]a]?` || src == `\u00e9|\x41|\t` {
			continue // ECMAScript's
		}
		d, err := regex.Text(src, budget())
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		want := regexp.MustCompile(`\A(?:` + src + `)\z`)
		for _, s := range texts {
			if src == "." && s == "\n" {
				continue
			}
			if got := d.Match(s); got != want.MatchString(s) {
				t.Errorf("%s on %q: %v", src, s, got)
			}
		}
	}
}

// TestQuotedSearches: an expression matches anywhere in the text of a JSON string, unless anchored.
func TestQuotedSearches(t *testing.T) {
	for _, c := range []struct {
		src     string
		yes, no []string
	}{
		{`b+`, []string{`"abc"`, `"b"`, `"\"b"`}, []string{`""`, `"a"`, `"\b"`}},
		{`^a$`, []string{`"a"`}, []string{`"ab"`, `"ba"`, `a`}},
		{`^a|b$`, []string{`"ax"`, `"xb"`, `"a"`}, []string{`"xa"`, `"bx"`}},
		{`^(?!foo)(?=.*\d)[a-z\d]+$`, []string{`"bar1"`, `"1"`}, []string{`"foo1"`, `"bar"`}},
		{`^[^"]$`, []string{`"a"`, `"\\"`, `"\n"`}, []string{`"\""`, `""`}},
		{`^\s$`, []string{`" "`, `"\t"`}, []string{`"\u0085"`, `"a"`}},
		{``, []string{`""`, `"x"`}, []string{`x`}},
	} {
		d, err := regex.Quoted(c.src, jsontext.Char, budget())
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		grammartest.Match(t, c.src, d, c.yes, c.no)
	}
}

// TestWhatIsNotRegularIsAnError: and so is what is broken or too large.
func TestWhatIsNotRegularIsAnError(t *testing.T) {
	for _, src := range []string{`(a)\1`, `\bx`, `(?<=a)b`, `a++`, `(`, `)`, `[a`, `[b-a]`, `*a`, `a{2,1}`, `\p{Nope}`, `(?x)a`, `\`, `a**`, `a{,2}`, `(?<n`, "\xff", `a(?=b)`, `a^b`} {
		var own *regex.Error
		if _, err := regex.Text(src, budget()); !errors.As(err, &own) {
			t.Errorf("%q: got %v, want an error of this package", src, err)
		}
	}
	if _, err := regex.Text(`(a|b)*a(a|b){40}`, budget()); !errors.Is(err, dfa.ErrTooLarge) {
		t.Errorf("an exponential expression: %v", err)
	}
}

func FuzzQuoted(f *testing.F) {
	for _, src := range expressions {
		f.Add(src, "text")
	}
	f.Fuzz(func(t *testing.T, src, text string) {
		small := &dfa.Budget{Steps: 10_000_000, States: 1 << 12}
		d, err := regex.Quoted(src, jsontext.Char, small)
		if err != nil || d.IsEmpty() {
			return
		}
		d.Match(jsontext.Quote(text))
		if _, err := regex.Text(src, small); err == nil {
			return
		}
	})
}
