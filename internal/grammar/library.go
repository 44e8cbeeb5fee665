package grammar

import (
	"container/list"
	"sync"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// A Library has the terminals of one vocabulary that grammars share, with the tokens that they can
// read. It is safe for concurrent use.
type Library struct {
	vocab *vocab.Vocab

	mu       sync.Mutex
	named    map[string]*Terminal
	literals map[string]*Terminal
	shared   map[string]*list.Element
	used     list.List // of *shared, the most recently used first
	added    int       // to shared

	rests rests
}

// lexer returns the lexer of an automaton, which is nil if it is made later.
func (l *Library) lexer(d *dfa.DFA) *lexer { return &lexer{d: d, v: l.vocab, rests: &l.rests} }

// maxLiterals is the maximum number of literals in a library.
const maxLiterals = 4096

// NewLibrary returns an empty library.
func NewLibrary(v *vocab.Vocab) *Library {
	return &Library{vocab: v, named: map[string]*Terminal{}, literals: map[string]*Terminal{}}
}

// Vocab returns the vocabulary.
func (l *Library) Vocab() *vocab.Vocab { return l.vocab }

// Named returns the terminal called name. The first call makes it from the result of make. Names
// must be constants of the code and never come from a request, because they are kept for ever.
func (l *Library) Named(name string, make func() *dfa.Expr) *Terminal {
	return l.NamedDFA(name, func(budget *dfa.Budget) (*dfa.DFA, error) { return dfa.Compile(make(), budget) })
}

// NamedDFA is Named for an automaton. It panics if make fails, which is a bug.
func (l *Library) NamedDFA(name string, make func(budget *dfa.Budget) (*dfa.DFA, error)) *Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.named[name]; t != nil {
		return t
	}
	d, err := make(&dfa.Budget{Steps: buildSteps, States: buildStates})
	if err != nil {
		panic("grammar: terminal " + name + ": " + err.Error())
	}
	t := &Terminal{lex: l.lexer(d), max: -1}
	l.named[name] = t
	return t
}

// literal returns the terminal of s, which has 1 to maxLiteral bytes.
func (l *Library) literal(s string) *Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.literals[s]; t != nil {
		return t
	}
	t := &Terminal{lex: l.lexer(dfa.Text(s)), max: -1}
	if len(l.literals) >= maxLiterals {
		clear(l.literals)
	}
	l.literals[s] = t
	return t
}

// DFA returns the automaton of t.
func (t *Terminal) DFA() *dfa.DFA {
	t.lex.ready()
	return t.lex.d
}

// Counted returns t restricted to strings of least to most characters; if most is negative, there
// is no maximum. t must be the automaton of a JSON string with its quotes. ok is false if t cannot
// count characters, because the limits exclude too many of its strings. The caller then intersects
// automata.
func (t *Terminal) Counted(least, most int) (counted *Terminal, ok bool) {
	return t.withCounts(wholeString, least, most)
}

// CountedPart is Counted for the automaton of a part of a JSON string, without the quotes.
func (t *Terminal) CountedPart(least, most int) (counted *Terminal, ok bool) {
	return t.withCounts(stringPart, least, most)
}

// CountedText is Counted for the automaton of a plain text, without quotes and escapes. A terminal
// may be used with one of the three only.
func (t *Terminal) CountedText(least, most int) (counted *Terminal, ok bool) {
	return t.withCounts(plainText, least, most)
}

func (t *Terminal) withCounts(of counting, least, most int) (counted *Terminal, ok bool) {
	c := t.lex.counts(of)
	if c == nil {
		return nil, false
	}
	shortest := int(c.least[t.lex.d.Start()])
	if most >= 0 && most < max(least, shortest) || least > shortest && !c.grows {
		return nil, false
	}
	return &Terminal{lex: t.lex, counts: c, min: int64(least), max: int64(most)}, true
}
