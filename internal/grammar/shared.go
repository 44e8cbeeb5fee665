package grammar

import (
	"container/list"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// Limits of the terminals that grammars share although they come from requests.
const (
	maxShared      = 512
	maxSharedBytes = 4 << 20
)

// shared is a terminal that is kept, with what it was made of.
type shared struct {
	key  string
	term *Terminal
}

// Shared returns the terminal that key describes, which make makes if it is not kept. Schemas have the
// same patterns and ranges again and again: their automata, and the tokens that those can read, are kept
// as long as they are among the last used and all together are small.
func (l *Library) Shared(key string, make func() (*dfa.DFA, error)) (*Terminal, error) {
	l.mu.Lock()
	if e := l.shared[key]; e != nil {
		l.used.MoveToFront(e)
		l.mu.Unlock()
		return e.Value.(*shared).term, nil //nolint:forcetypeassert // the list has nothing else
	}
	l.mu.Unlock()
	d, err := make()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil {
		l.shared = map[string]*list.Element{}
	}
	t := &Terminal{lex: &lexer{d: d, v: l.vocab}, max: -1}
	l.shared[key] = l.used.PushFront(&shared{key, t})
	l.evict()
	return t, nil
}

// evict drops the shared terminals that were not used for longest, but not the last one. Grammars that
// have them keep them.
func (l *Library) evict() {
	total, n := 0, 0
	for e := l.used.Front(); e != nil; {
		next := e.Next()
		s := e.Value.(*shared) //nolint:forcetypeassert // the list has nothing else
		total += len(s.key) + s.term.lex.size()
		if n++; n > 1 && (n > maxShared || total > maxSharedBytes) {
			l.used.Remove(e)
			delete(l.shared, s.key)
		}
		e = next
	}
}

// size is about how much memory l takes.
func (l *lexer) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d.Bytes() + l.bytes + 200
}

// Bytes returns about how much memory l takes: the vocabulary and the terminals, with the tokens that
// they can read.
func (l *Library) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := l.vocab.Bytes()
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
