package grammar

import (
	"reflect"
	"testing"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// TestKeysWithPrefixesWalkedTheVocabularyAgain: the walk took 4 ms for each schema that had keys with a prefix of
// their own, as with patternProperties.
func TestKeysWithPrefixesWalkedTheVocabularyAgain(t *testing.T) {
	l := NewLibrary(vocab.New(letters{}, 26))
	lexerOf := func(begin string, end byte) *lexer {
		e := dfa.Concat(dfa.Literal(begin), dfa.Star(dfa.Alt(dfa.Byte(0, 'y'), dfa.Byte(0x80, 0xf0))), dfa.Byte(end, end))
		term, err := l.Shared(begin+string(end), func() (*dfa.DFA, error) {
			return dfa.Compile(e, &dfa.Budget{Steps: buildSteps, States: buildStates})
		})
		if err != nil {
			t.Fatal(err)
		}
		return term.lex
	}
	behind := func(x *lexer, begin string) (*local, string) {
		s := x.d.Start()
		for _, b := range []byte(begin) {
			s = x.d.Step(s, b)
		}
		return x.local(s, nil), x.d.Rest(s, maxRestStates)
	}
	a, b, c := lexerOf("a", 'z'), lexerOf("bcd", 'z'), lexerOf("e", 0xff)
	ofA, restA := behind(a, "a")
	ofB, restB := behind(b, "bcd")
	ofC, restC := behind(c, "e")
	if restA == "" || restA != restB || restA == restC {
		t.Errorf("rests %q, %q, %q", restA, restB, restC)
	}
	if _, begin := behind(a, ""); begin == restA {
		t.Error("the beginning of a has the rest of its end")
	}
	if ofC == ofA || !reflect.DeepEqual(ofB.ids, a.read(a.d.Step(a.d.Start(), 'a')).ids) {
		t.Errorf("got %v, %v, %v", ofA.ids, ofB.ids, ofC.ids)
	}
	if ofA != ofB || l.rests.size() == 0 {
		t.Error("two strings with the same rest are walked twice")
	}
	if key := a.d.Rest(a.d.Start(), 1); key != "" {
		t.Errorf("more than one state are described: %q", key)
	}
}
