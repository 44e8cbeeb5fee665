package jsonschema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// texts are tokens, some of which end within a character or begin after one.
var texts = grammartest.Tokens{"a", "b", "ab", "bb", "aaa", "@", "b@", "@a", "é", "aé", "\xc3", "\xa9b", "\xa9", "\"", "a\"", "\"a", "\"\"", "a\",", ",", "\",\"", "\\", "n", "\\n", "b\\", "\\na",
	"\\u00", "1f", "\\u001F", "7", "x7", "\n", "/", "<", "</", "</p>", "a</p"}

// newTexts returns a compiler of grammars over texts.
func newTexts(lib *grammar.Library) *compiler {
	return &compiler{b: grammar.NewBuilder(lib), sets: map[string]*set{}, dfas: map[*str]*dfa.DFA{}, patterns: map[string]*str{}}
}

// randomStrings returns several patterns, exclusions and limits of length.
func randomStrings(r *rand.Rand) *str {
	patterns := []string{"^a", "b$", "^(ab)*$", "[^@]{2,5}", "^[ab]{1,4}@[ab]{0,3}$", "é", "^.*a.{3}$", "^(?=.*7)(?!b).{2,}$", "a|^b$", "^[^\\n]*$", "@.*@", "^(a|bb){2,4}$", "^\\x1f?[a7]+", "x{0,2}7", "^$", "\\d"}
	t := &str{max: -1}
	for range r.IntN(4) {
		t.patterns = merge(t.patterns, []place{{text: patterns[r.IntN(len(patterns))]}})
	}
	if r.IntN(3) == 0 {
		t.not = append(t.not, &str{max: -1, patterns: []place{{text: patterns[r.IntN(len(patterns))]}}})
	}
	if r.IntN(6) == 0 {
		t.not = append(t.not, &str{max: -1, texts: []string{"a", "ab", "é7"}})
	}
	if r.IntN(4) == 0 {
		t.not = append(t.not, &str{min: 2, max: 3})
	}
	if r.IntN(2) == 0 {
		t.min = r.IntN(6)
	}
	if r.IntN(2) == 0 {
		t.max = t.min + r.IntN(5)
	}
	return t
}

// TestStringsTooLargeForAnAutomatonAreReadAlike compares all masks of random texts, read as languages
// over characters, with those of automata over bytes.
func TestStringsTooLargeForAnAutomatonAreReadAlike(t *testing.T) {
	lib := grammar.NewLibrary(vocab.New(texts, len(texts)))
	r := rand.New(rand.NewPCG(15, 13))
	compared, empty := 0, 0
	for range 300 {
		s := randomStrings(r)
		c := newTexts(lib)
		d, err := c.strDFA(s, "")
		if err != nil {
			t.Fatal(err)
		}
		after := c.b.Literal(",", grammar.Return)
		whole, wholeErr := c.b.Grammar(c.b.Term(c.b.Terminal(d), after))
		c = newTexts(lib)
		at, err := c.quotedText(s, nil, c.b.Literal(",", grammar.Return))
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := c.b.Grammar(at)
		if fmt.Sprint(wholeErr) != fmt.Sprint(gotErr) {
			t.Fatalf("%+v: got %v, want %v", s, gotErr, wholeErr)
		}
		if wholeErr != nil {
			empty++
			continue
		}
		compared += alike(t, r, fmt.Sprintf("%+v", s), got, whole)
		if t.Failed() {
			return
		}
	}
	if compared < 2000 || empty < 10 || empty > 150 {
		t.Errorf("%d masks compared, %d empty", compared, empty)
	}
}

// TestUnquotedTextsTooLargeForAnAutomatonAreReadAlike does so for texts without quotes, which must not
// contain a stop.
func TestUnquotedTextsTooLargeForAnAutomatonAreReadAlike(t *testing.T) {
	lib := grammar.NewLibrary(vocab.New(texts, len(texts)))
	r := rand.New(rand.NewPCG(16, 13))
	compared := 0
	for range 200 {
		s := randomStrings(r)
		c := newTexts(lib)
		write := func(d *dfa.DFA) (*dfa.DFA, error) { return c.raw(d, "</p>", "</p>") }
		d, err := c.strDFA(s, "")
		if err == nil {
			d, err = write(d)
		}
		if errors.Is(err, dfa.ErrTooLarge) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		whole, wholeErr := c.b.Grammar(c.b.Term(c.b.Terminal(d), c.b.Literal("</p>", grammar.Return)))
		c = newTexts(lib)
		at, err := c.unquotedText(s, write, c.b.Literal("</p>", grammar.Return))
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := c.b.Grammar(at)
		if fmt.Sprint(wholeErr) != fmt.Sprint(gotErr) {
			t.Fatalf("%+v: got %v, want %v", s, gotErr, wholeErr)
		}
		if wholeErr == nil {
			compared += alike(t, r, fmt.Sprintf("%+v", s), got, whole)
		}
		if t.Failed() {
			return
		}
	}
	if compared < 1000 {
		t.Errorf("%d masks compared", compared)
	}
}

// alike reads random texts with two grammars and compares their masks. It returns their number.
func alike(t *testing.T, r *rand.Rand, name string, got, want *grammar.Grammar) (compared int) {
	t.Helper()
	for range 4 {
		a, b := got.NewMatcher(nil), want.NewMatcher(nil)
		text := ""
		for range 12 {
			mask, masks := a.Mask(), b.Mask()
			if !slices.Equal(mask, masks) || a.Complete() != b.Complete() {
				t.Errorf("%s after %q: got %b, want %b; complete %t, want %t", name, text, mask, masks, a.Complete(), b.Complete())
				return compared
			}
			compared++
			var may []int32
			for id := range texts {
				if mask[id/64]>>(id%64)&1 != 0 {
					may = append(may, int32(id))
				}
			}
			if len(may) == 0 { // no token has the character that must follow
				break
			}
			id := may[r.IntN(len(may))]
			if a.Accept(id) != nil || b.Accept(id) != nil {
				t.Errorf("%s: %q is not accepted after %q", name, texts[id], text)
				return compared
			}
			text += texts[id]
		}
	}
	return compared
}

// TestLargePatternsTogetherWereRejected: patterns whose automata are large were a 400 together with
// limits of length that they do not imply, together with other patterns, and in names.
func TestLargePatternsTogetherWereRejected(t *testing.T) {
	lib := grammar.NewLibrary(vocab.New(texts, len(texts)))
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type":"string","pattern":"^https?://\\S{1,2000}$","minLength":12,"maxLength":500}`,
			[]string{`"http://` + x(5) + `"`, `"https://` + x(492) + `"`}, []string{`"http://xxxx"`, `"https://` + x(493) + `"`, `"http:/x` + x(20) + `"`}},
		{`{"type":"string","pattern":"^\\S{1,64}@\\S{1,255}$","maxLength":100,"allOf":[{"pattern":"\\.com$"},{"not":{"pattern":"^x{1,300}@"}}]}`,
			[]string{`"ab@y.com"`, `"a@` + x(10) + `@.com"`}, []string{`"x@y.com"`, `"ab@y.org"`, `"ab@` + x(94) + `.com"`}},
		{`{"type":"string","pattern":"^(?=.*\\d)(?=.*[A-Z])(?!.*é)\\S{8,2000}$"}`,
			[]string{`"passworD1"`, `"1D` + x(1998) + `"`}, []string{`"password1"`, `"passwoD1é"`, `"1D` + x(1999) + `"`, `"1Dxxxxx"`}},
		{`{"type":"object","propertyNames":{"pattern":"^https?://\\S{1,2000}$","maxLength":300},"additionalProperties":{"const":1}}`,
			[]string{`{}`, `{"http://x":1}`, `{"http://x":1,"https://` + x(292) + `":1}`}, []string{`{"ftp://x":1}`, `{"https://` + x(293) + `":1}`}},
		{`{"type":"object","properties":{"http://x":{"const":2}},"patternProperties":{"^http://\\S{1,3000}$":{"type":"integer"},"\\.com$":{"minimum":5}},"additionalProperties":false}`,
			[]string{`{"http://x":2}`, `{"http://y":1}`, `{"http://y.com":6}`, `{"y.com":"z"}`}, []string{`{"http://x":1}`, `{"http://y":"z"}`, `{"http://y.com":4}`, `{"y":1}`}},
		{`{"enum":["http://x","http://y z","http://` + x(30) + `"],"type":"string","allOf":[{"pattern":"^http://\\S{1,3000}$"},{"pattern":"x$","maxLength":20}]}`,
			[]string{`"http://x"`}, []string{`"http://y z"`, `"http://` + x(30) + `"`}},
	} {
		g, err := Compile(lib, []byte(c.schema))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, text := range c.yes {
			if !g.Match(text) {
				t.Errorf("%.60s rejects %.40s", c.schema, text)
			}
		}
		for _, text := range c.no {
			if g.Match(text) {
				t.Errorf("%.60s accepts %.40s", c.schema, text)
			}
		}
	}
}
