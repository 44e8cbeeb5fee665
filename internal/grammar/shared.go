package grammar

import (
	"container/list"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// Limits of terminals that come from requests and that grammars share.
const (
	maxShared      = 512
	maxSharedBytes = 4 << 20
)

// shared is a cached terminal with its key.
type shared struct {
	key  string
	term *Terminal
}

// Shared returns the terminal of key. If it is not cached, make makes its automaton. Schemas often
// repeat patterns and ranges. Their automata, with the tokens that they can read, stay cached while
// they are recently used and small in total.
func (l *Library) Shared(key string, make func() (*dfa.DFA, error)) (*Terminal, error) {
	if t := l.kept(key); t != nil {
		return t, nil
	}
	d, err := make()
	if err != nil {
		return nil, err
	}
	return l.keep(key, l.lexer(d)), nil
}

// Late is Shared for an automaton that make makes when a text first reaches it. The terminal must
// match at least one text, but not the empty one.
func (l *Library) Late(key string, make func() *dfa.DFA) *Terminal {
	if t := l.kept(key); t != nil {
		return t
	}
	lex := l.lexer(nil)
	lex.make = make
	return l.keep(key, lex)
}

// kept returns the cached terminal of a key, or nil.
func (l *Library) kept(key string) *Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.shared[key]
	if e == nil {
		return nil
	}
	l.used.MoveToFront(e)
	return e.Value.(*shared).term //nolint:forcetypeassert // the list has nothing else
}

func (l *Library) keep(key string, lex *lexer) *Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil {
		l.shared = map[string]*list.Element{}
	}
	t := &Terminal{lex: lex, max: -1}
	l.shared[key] = l.used.PushFront(&shared{key, t})
	l.added++
	if l.added%evictEvery == 0 || l.used.Len() > maxShared || lex.automaton() > maxSharedBytes/evictEvery {
		l.evict()
	}
	return t
}

// evictEvery is the number of added small terminals between two checks of the total size.
const evictEvery = 32

// evict drops the least recently used shared terminals, but keeps the last one. Grammars that use a
// terminal keep it.
func (l *Library) evict() {
	total, n := 0, 0
	for e := l.used.Front(); e != nil; {
		next := e.Next()
		s := e.Value.(*shared) //nolint:forcetypeassert // the list has nothing else
		total += len(s.key) + s.term.lex.size()
		if n++; n > 1 && (n > maxShared-evictEvery || total > maxSharedBytes) {
			l.used.Remove(e)
			delete(l.shared, s.key)
		}
		e = next
	}
}

// size returns the approximate memory of l.
func (l *lexer) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.automaton() + l.bytes + 200
}

// Bytes returns the approximate memory of l: the vocabulary and the terminals, with the tokens that
// they can read.
func (l *Library) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := l.vocab.Bytes() + l.rests.size()
	for e := l.used.Front(); e != nil; e = e.Next() {
		total += e.Value.(*shared).term.lex.size() //nolint:forcetypeassert // the list has nothing else
	}
	for _, terms := range []map[string]*Terminal{l.named, l.literals} {
		for name, t := range terms {
			total += len(name) + t.lex.size()
		}
	}
	return total
}
