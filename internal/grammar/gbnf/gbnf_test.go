package gbnf_test

import (
	"errors"
	"testing"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/gbnf"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/vocab"
)

func compile(src string) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(grammar.NewLibrary(vocab.New(grammartest.Bytes{}, 256)))
	at, err := gbnf.Append(b, src, grammar.Return)
	if err != nil {
		return nil, err
	}
	return b.Grammar(at)
}

// TestGrammarsMatch: the notation means what it means in llama.cpp.
func TestGrammarsMatch(t *testing.T) {
	for _, c := range []struct {
		src     string
		yes, no []string
	}{
		{`root ::= "a" | "b" "c"`, []string{"a", "bc"}, []string{"", "ab", "b", "c"}},
		{"root ::= [a-c^\\]]+ # comment\n", []string{"abc", "^]"}, []string{"d", ""}},
		{"root ::= (\"x\" |\n  \"y\")* \"\\n\" [^\\n\"]?", []string{"\n", "xyx\né"}, []string{"x", "\n\""}},
		{`root ::= "\x41\u00e9\U0001F642\"\\"`, []string{"Aé🙂\"\\"}, []string{"A"}},
		{`root ::= [0-9]{2} [a]{1,} [b]{,2} [c]{2,3}`, []string{"12acc", "12aabbccc"}, []string{"1acc", "12acccc", "12bcc"}},
		{`root ::= .{2}`, []string{"é🙂", "\n\n"}, []string{"a", "abc"}},
		{"root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | num\nnum ::= [0-9]+", []string{"1", "[]", "[1,[2,[]],33]"}, []string{"[", "[1,]", "[1]]"}},
		{"root ::= a\na ::= \"x\" a \"y\" | \"\"", []string{"", "xy", "xxxyyy"}, []string{"xxy", "xyy"}},
		{"root ::= (a b){2,3}\na ::= \"x\" a | \"x\"\nb ::= \"-\" b | \"-\"", []string{"x-xx--", "x-x-x-"}, []string{"x-", "x-x-x-x-"}},
	} {
		g, err := compile(c.src)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		grammartest.Match(t, c.src, g, c.yes, c.no)
	}
}

// TestBadGrammarsAreErrors: with the line, and never a panic.
func TestBadGrammarsAreErrors(t *testing.T) {
	for src, line := range map[string]int{
		"a ::= \"x\"": 0, "root ::= b": 1, "root ::= \"a": 1, "root ::= (\"a\"": 1, "root ::=\n [a": 2, "root ::= \"a\"\nroot ::= \"b\"": 2,
		"root ::= [b-a]": 1, `root ::= "\q"`: 1, "root ::= \"a\"{3,2}": 1, "root = 1": 1, "": 0,
	} {
		_, err := compile(src)
		var own *gbnf.Error
		if !errors.As(err, &own) || own.Line != line {
			t.Errorf("%q: got %v, want an error in line %d", src, err, line)
		}
	}
	for _, src := range []string{"root ::= root \"a\" | \"b\"", "root ::= a\na ::= b? a \"x\" | \"y\"\nb ::= \"\""} {
		if _, err := compile(src); !errors.Is(err, grammar.ErrLeftRecursion) {
			t.Errorf("%q: got %v, want left recursion", src, err)
		}
	}
	if _, err := compile("root ::= \"a\" root"); !errors.Is(err, grammar.ErrEmpty) {
		t.Errorf("a grammar without texts: %v", err)
	}
	if _, err := compile("root ::= ((([a-z]{90000}){90000}){90000})"); !errors.Is(err, grammar.ErrTooLarge) {
		t.Errorf("a large grammar: %v", err)
	}
}

func FuzzAppend(f *testing.F) {
	f.Add("root ::= \"a\" (b | [c-d]{1,3})* # x\nb ::= root? \"e\"", "ace")
	f.Add("root ::= [^\\x00-\\u00ff]+ .", "🙂🙂")
	f.Fuzz(func(t *testing.T, src, text string) {
		g, err := compile(src)
		if err != nil {
			return
		}
		g.Match(text)
		g.NewMatcher(nil).Mask()
	})
}
