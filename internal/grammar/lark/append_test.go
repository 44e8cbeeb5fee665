package lark_test

import (
	"errors"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/lark"
	"github.com/heftai/heft/internal/grammar/regex"
	"github.com/heftai/heft/internal/grammar/vocab"
)

func appended(src string) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(grammar.NewLibrary(vocab.New(grammartest.Bytes{}, 256)))
	at, err := lark.Append(b, src, grammar.Return)
	if err != nil {
		return nil, err
	}
	return b.Grammar(at)
}

// sums are the sums of lark's introduction: rules that call themselves at the left and in brackets.
const sums = `?start: sum
?sum: product | sum "+" product -> add | sum "-" product
?product: atom | product "*" atom
?atom: NUMBER | "-" atom | CNAME | "(" sum ")"
%import common.CNAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
`

// TestNestedGrammarsMatch: texts of nested grammars, and of those that are one expression.
func TestNestedGrammarsMatch(t *testing.T) {
	for _, c := range []struct {
		src     string
		yes, no []string
	}{
		{"start: \"(\" start \")\" | \"x\"", []string{"x", "((x))"}, []string{"(x", "()", "x)"}},
		{sums, []string{"1", " 1 + 2*(a - -3) ", "((1))*2-x"}, []string{"(1", "1+", "1 2", "()", "2*(1"}},
		{"start: value\nvalue: \"[\" [value (\",\" value)*] \"]\" | /[0-9]/ | value \"!\"", []string{"[]", "[1,[2]!,3]!!"}, []string{"[", "[1,]", "!"}},
		{"start: a ~ 2\na: \"<\" a? \">\" | a \"&\" a | \"!\" a", []string{"<><<>>", "!<>&<><>"}, []string{"<>", "<>&", "<><><>&"}},
		{patch, []string{"*** Begin\n*** Add: a\n+x\n*** End"}, []string{"*** Begin\n*** End"}},
	} {
		g, err := appended(c.src)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		grammartest.Match(t, c.src, g, c.yes, c.no)
	}
	_, err := lark.Expression(sums)
	if own := (*lark.Error)(nil); !errors.As(err, &own) || !own.Nested {
		t.Errorf("got %v, want an error of nesting", err)
	}
	if _, err := appended("start: a | \"(\" start \")\"\na: b \"x\" | \"y\"\nb: a | \"z\""); !errors.Is(err, grammar.ErrLeftRecursion) {
		t.Errorf("got %v, want left recursion", err)
	}
	if _, err := appended("start: \"(\" start \")\" | b"); err == nil {
		t.Error("a rule that is not defined is no error")
	}
}

func FuzzAppend(f *testing.F) {
	f.Add(sums, "1+(2)")
	f.Add("start: a ~ 2\na: \"<\" a? \">\" | a \"&\" a | \"!\" a | [\"x\" a]", "<><>")
	f.Fuzz(func(t *testing.T, src, text string) {
		g, err := appended(src)
		if err != nil {
			return
		}
		expression, err := lark.Expression(src)
		if err != nil {
			return
		}
		d := automaton(expression)
		if d != nil && d.Match(text) != g.Match(text) {
			t.Errorf("%q of %q: the expression says %t", text, src, d.Match(text))
		}
	})
}

// automaton is that of an expression; nil if it is too large.
func automaton(expression string) *dfa.DFA {
	d, err := regex.Text("(?:"+expression+")", &dfa.Budget{Steps: 1_000_000, States: 1 << 12})
	if err != nil {
		return nil
	}
	return d
}
