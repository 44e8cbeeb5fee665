package lark_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/lark"
	"github.com/heftai/heft/internal/grammar/regex"
)

func compile(t *testing.T, src string) *dfa.DFA {
	t.Helper()
	text, err := lark.Expression(src)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	d, err := regex.Text("(?:"+text+")", &dfa.Budget{Steps: 300_000_000, States: 1 << 16})
	if err != nil {
		t.Fatalf("%s: %s: %v", src, text, err)
	}
	return d
}

// TestGrammarsMatch: the notation means what it means in lark.
func TestGrammarsMatch(t *testing.T) {
	for _, c := range []struct {
		src     string
		yes, no []string
	}{
		{`start: "a" | "b" "c"`, []string{"a", "bc"}, []string{"", "ab", "b", "c"}},
		{"start: \"x\"\n  | \"y\" -> other\n  |", []string{"x", "y", ""}, []string{"xy"}},
		{"start: (\"a\"\n | \"b\")+ [\"c\"] \"d\"? // end\n# more\n", []string{"a", "abbacd", "bc"}, []string{"", "dc"}},
		{`start: "a" ~ 2 "b"~1..3`, []string{"aab", "aabbb"}, []string{"ab", "aabbbb"}},
		{`start: "a".."c" "\u00e9\n\"\\" "Select"i`, []string{"bé\n\"\\SELECT"}, []string{"dé\n\"\\select"}},
		{`start: /[a\/]+/ /x.y/s /é/i "."`, []string{"a/x\nyÉ."}, []string{"a/x\nyÉ!"}},
		{"start: A _b\nA.2: \"a\" B\nB: /b+/\n!?_b: \"c\"", []string{"abbc"}, []string{"ac"}},
		{"%import common.INT\n%import common.WS\n%import common (CNAME, ESCAPED_STRING)\n%ignore WS\nstart: CNAME \"=\" (INT | ESCAPED_STRING)",
			[]string{"a = 12 ", " b_1=\"x\\\"y\""}, []string{"a =", "a = 1 2", `a = "x"y"`}},
		{"%import common.NUMBER -> N\nstart: N", []string{"1", "1.", ".5e-3", "2E7"}, []string{"", ".", "e5", "-1"}},
		// Recursion at the ends of alternatives.
		{"start: sum\n?sum: product | sum \"+\" product\nproduct: /[0-9]/ | product \"*\" /[0-9]/", []string{"1", "1+2*3+4"}, []string{"+1", "1+", "1**2"}},
		{"start: \"x\" start | \"y\"", []string{"y", "xxy"}, []string{"x", "yx"}},
		{"start: e\ne: e \"+\" e | \"-\" e | e \"!\" | /[0-9]/ | e", []string{"1", "-1+--2!!+3"}, []string{"1-2", "+1", "!1", "1!2"}},
	} {
		d := compile(t, c.src)
		for _, s := range c.yes {
			if !d.Match(s) {
				t.Errorf("%s: %q does not match", c.src, s)
			}
		}
		for _, s := range c.no {
			if d.Match(s) {
				t.Errorf("%s: %q matches", c.src, s)
			}
		}
	}
}

// TestHostileGrammarsAreBounded: in the bytes that are read again for each part, and in those of all expressions together.
func TestHostileGrammarsAreBounded(t *testing.T) {
	chain := "start: a0\n"
	for i := range 3000 {
		chain += fmt.Sprintf("a%d: a%d \"xxxxxxxxxxxxxxx\"\n", i, i+1)
	}
	for src, want := range map[string]string{chain + "a3000: \"y\"": "too large", strings.Repeat("\n", 2<<20) + "start: \"x\"": "more than 1048576 bytes"} {
		if _, err := lark.Expression(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", src, err, want)
		}
	}
}

// patch is a grammar like those with which coding agents describe patches.
const patch = `start: begin hunk+ "*** End" LF?
begin: "*** Begin" LF
hunk: add | change
add: "*** Add: " name LF line+
change: "*** Change: " name LF (("@@" | "@@ " /(.+)/) LF | ("+" | "-" | " ") /(.*)/ LF)+
name: /(.+)/
line: "+" /(.*)/ LF -> text
%import common.LF
`

func TestAPatchMatches(t *testing.T) {
	d := compile(t, patch)
	good := "*** Begin\n*** Add: a.txt\n+one\n+\n*** Change: b.go\n@@ func\n-x\n+y\n z\n*** End\n"
	if !d.Match(good) {
		t.Error("a patch does not match")
	}
	for _, bad := range []string{strings.Replace(good, "+one", "one", 1), strings.Replace(good, "*** End", "", 1), good + "x"} {
		if d.Match(bad) {
			t.Errorf("%q matches", bad)
		}
	}
}

// TestBadGrammarsAreErrors: with the line and what cannot be held, and never a panic.
func TestBadGrammarsAreErrors(t *testing.T) {
	for src, want := range map[string]string{
		"": `no rule "start"`, "a: \"x\"": `no rule "start"`, "start: b": `line 1: "b" is not defined`, "start: \"a": "line 1: a string is not closed",
		"start: \"a\"\nstart: \"b\"": `line 2: "start" is defined twice`, "start: (\"a\"": "not closed", "start: /a": "not closed", "start \"a\"": "colon",
		"start: \"(\" start \")\" | \"x\"":           `"start" calls itself`,
		"start: a\na: b \"x\" | \"y\"\nb: a | \"z\"": `"a" calls itself`,
		"A: \"(\" A \")\" | \"x\"\nstart: A":         `"A" calls itself`,
		"start: start \"x\"":                         "always calls itself",
		"start: _sep{a, b}":                          "templates are not supported",
		"start: A\n%declare A":                       "line 2: %declare is not supported",
		"%import .other.A\nstart: A":                 "only terminals of common",
		"%import common.NOPE\nstart: NOPE":           "no terminal common.NOPE",
		"start: /(?<=a)b/":                           "lookbehind",
		"start: /^a/":                                "^ and $",
		"start: /a/x":                                "flag x",
		"start: A\nA: b\nb: \"x\"":                   `a terminal cannot call the rule "b"`,
		"start: \"b\"..\"a\"":                        "no range",
		"start: \"a\" ~ 3..2":                        "not in order",
		"start: \"\"":                                "empty",
		"start: \"a\" ~ 99999":                       "up to 10000",
		"start: " + strings.Repeat("(", 100):         "nested",
		"start: a a a a\na: b b b b\nb: c c c c c c\nc: d d d d d d d\nd: \"" + strings.Repeat("x", 500) + "\"": "too large",
	} {
		_, err := lark.Expression(src)
		var own *lark.Error
		if !errors.As(err, &own) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want %q", src, err, want)
		}
	}
}

func FuzzExpression(f *testing.F) {
	f.Add(patch)
	f.Add("start: e\ne: e \"+\" e | \"-\" e | A~2..3\nA: /x/i \"a\"..\"b\" [\"c\"]\n%ignore \" \"\n%import common.WS")
	f.Fuzz(func(t *testing.T, src string) {
		text, err := lark.Expression(src)
		if err != nil {
			return
		}
		if _, err := regex.Text("(?:"+text+")", &dfa.Budget{Steps: 1_000_000, States: 1 << 12}); err != nil {
			var syntax *regex.Error
			if errors.As(err, &syntax) && !strings.Contains(err.Error(), "more than") {
				t.Errorf("%q: %q: %v", src, text, err)
			}
		}
	})
}
