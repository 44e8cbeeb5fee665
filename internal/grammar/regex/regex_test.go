package regex_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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

// TestUnsupportedExpressionsAreErrors: unsupported, malformed and too large expressions are errors.
func TestUnsupportedExpressionsAreErrors(t *testing.T) {
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

// TestUncountedExpressionsMatchTheSameTexts: with the numbers of characters that Uncount returns.
func TestUncountedExpressionsMatchTheSameTexts(t *testing.T) {
	var texts []string
	for n := range 26 {
		a := strings.Repeat("a", n)
		texts = append(texts, a, a+"1", "1"+a, "b"+a+"é", a+"b"+a)
	}
	for src, want := range map[string]string{
		`a{2,20}`: `a*`, `^a{17}$`: `^a*$`, `^[ab]{17,}$`: `^[ab]*$`, `1?a{1,20}`: "", `1a{1,20}?`: `1a*?`, `(?:b)[a]{18,20}(é|1)`: `(?:b)[a]*(é|1)`,
		`a{3}b[a-c]{1,17}`: `a{3}b[a-c]*`, `a{18}b.{1,17}`: `a{18}b.*`, `(a{17})b{1}`: `(a*)b{1}`, `(a{17}|b)`: "", `a{1,16}`: "", `a{2,20}b{2,20}`: "", `(?i)A{0,20}`: `(?i)A*`,
		`((a{1000}){1000}){1000}b{0,20}`: "", `a{17`: "", `(`: "",
	} {
		open, least, most, ok := regex.Uncount(src, true)
		if ok != (want != "") {
			t.Errorf("%s: %v", src, ok)
		}
		if !ok {
			continue
		}
		if open != want {
			t.Errorf("%s became %s, want %s", src, open, want)
		}
		whole, err := regex.Text(src, budget())
		loose, openErr := regex.Text(open, budget())
		if err != nil || openErr != nil {
			t.Fatalf("%s: %v, %v", src, err, openErr)
		}
		for _, text := range texts {
			n := utf8.RuneCountInString(text)
			if got := loose.Match(text) && n >= least && (most < 0 || n <= most); got != whole.Match(text) {
				t.Errorf("%s on %q: %v", src, text, got)
			}
		}
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
