package regex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
	"github.com/heftai/heft/internal/grammar/vocab"
)

var letters = grammartest.Tokens{"a", "b", "aa", "ab", "ba", "bab", "aaaa", "abbaab", "@", "b@", "@a", "a@b@", "é", "aé", "\xc3", "\xa9b", "\"", "a\"", "\"a",
	"\\", "n", "\\n", "\\n\\n", "b\\", "b\\na", "\n", "\n\n", "a\nb"}

// expression returns a random expression.
func expression(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return []string{"a", "b", "@", "[ab]", "[^@]", "[aé]", ".", `[^a\n]`}[r.IntN(8)]
	}
	sub := func() string { return expression(r, depth-1) }
	switch r.IntN(5) {
	case 0:
		return "(?:" + sub() + "|" + sub() + ")"
	case 1:
		return fmt.Sprintf("(?:%s){%d,%d}", sub(), r.IntN(3), 2+r.IntN(4))
	case 2:
		return []string{"[ab]", ".", "[^@]", "(?:" + sub() + ")"}[r.IntN(4)] + []string{"{2,}", "*", "+", "?", "{3}", "{0,9}", "{2,12}"}[r.IntN(7)]
	}
	return sub() + sub()
}

// TestProgramsOfExpressionsReadTheTextsOfTheirAutomata compares all masks of random texts, where all
// repetitions are counted, with those of the automaton of the whole expression.
func TestProgramsOfExpressionsReadTheTextsOfTheirAutomata(t *testing.T) {
	defer regex.Split(2)()
	lib := grammar.NewLibrary(vocab.New(letters, len(letters)))
	r := rand.New(rand.NewPCG(15, 2026))
	compared, programs := 0, 0
	for range 600 {
		src := expression(r, 3)
		quoted := r.IntN(2) == 0
		if quoted {
			src = []string{"", "^"}[r.IntN(2)] + src + []string{"", "$"}[r.IntN(2)]
		}
		b := grammar.NewBuilder(lib)
		var d *dfa.DFA
		var at grammar.Pos
		var err error
		ok := false
		if quoted {
			d, err = regex.Quoted(src, jsontext.Char, budget())
			at, ok = regex.AppendQuoted(b, src, jsontext.Char, 0, -1, grammar.Return)
		} else {
			d, err = regex.Text(src, budget())
			at, ok = regex.AppendText(b, src, grammar.Return)
		}
		if err != nil || !ok {
			continue
		}
		g, err := b.Grammar(at)
		whole := grammar.NewBuilder(lib)
		want, wantErr := whole.Grammar(whole.Term(whole.Terminal(d), grammar.Return))
		if err != nil || wantErr != nil {
			if (err == nil) != (wantErr == nil) {
				t.Errorf("%s: %v, want %v", src, err, wantErr)
			}
			continue
		}
		programs++
		for range 4 {
			compared += compare(t, r, src, g, want)
		}
	}
	if programs < 300 || compared < 5000 {
		t.Errorf("compared %d masks of %d expressions", compared, programs)
	}
}

// compare reads a random text with both grammars and returns the number of compared masks.
func compare(t *testing.T, r *rand.Rand, src string, g, want *grammar.Grammar) (masks int) {
	t.Helper()
	a, b := g.NewMatcher(nil), want.NewMatcher(nil)
	var text []string
	for range 24 {
		got, wanted := a.Mask(), b.Mask()
		if !slices.Equal(got, wanted) || a.Complete() != b.Complete() || a.Over() != b.Over() {
			t.Errorf("%q after %q: tokens %b, want %b; complete %t, want %t; %v", src, text, got, wanted, a.Complete(), b.Complete(), a.Err())
			return masks
		}
		masks++
		var allowed []int32
		for id := range int32(len(letters)) {
			if vocab.Bits(wanted).Has(id) {
				allowed = append(allowed, id)
			}
		}
		if len(allowed) == 0 {
			return masks
		}
		id := allowed[r.IntN(len(allowed))]
		text = append(text, letters[id])
		if err := a.Accept(id); err != nil {
			t.Errorf("%q after %q: %v", src, text, err)
		}
		if err := b.Accept(id); err != nil {
			t.Fatal(err)
		}
	}
	return masks
}

// TestAmbiguousRepetitionsStayFast: a text can be split between the repetitions in thousands of
// ways.
func TestAmbiguousRepetitionsStayFast(t *testing.T) {
	lib := grammar.NewLibrary(vocab.New(letters, len(letters)))
	for _, src := range []string{`^[ab]{1,5000}[ab]{1,5000}[ab]{1,5000}$`, `^([ab]+@?){1,3000}$`, `^([ab]{1,90}){1,3000}$`, `^([ab]{1,300}@?[ab]{0,300}){2,900}$`} {
		b := grammar.NewBuilder(lib)
		at, ok := regex.AppendText(b, src, grammar.Return)
		g, err := b.Grammar(at)
		if !ok || err != nil {
			t.Fatal(src, ok, err)
		}
		m := g.NewMatcher(nil)
		for i := range 2000 {
			if i%100 == 0 {
				m.Mask()
			}
			if err := m.Accept(int32(i % 2)); err != nil {
				t.Fatal(src, i, err)
			}
		}
		if !m.Complete() || !g.Match(strings.Repeat("ab", 2000)) || g.Match(strings.Repeat("ab", 2000)+"\n") {
			t.Error(src)
		}
	}
}
