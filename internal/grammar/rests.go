package grammar

import "sync"

// rests has what states of different lexers can read that accept the same rests of texts. Many schemas have keys and
// strings that begin in a way of their own and go on as any other: the walk over the vocabulary is that of the first one.
type rests struct {
	mu    sync.Mutex
	known map[string]*local // by dfa.DFA.Rest
	bytes int
}

const (
	maxRestStates = 64  // of an automaton that is compared
	minRestBytes  = 128 // that may come next: where fewer may, the walk is short
	maxRestsBytes = 4 << 20
)

// local is what state s of l can read.
func (r *rests) local(l *lexer, s int32) *local {
	next := 0
	for b := range 256 {
		if l.d.Step(s, byte(b)) >= 0 {
			next++
		}
	}
	if next < minRestBytes {
		return l.read(s)
	}
	key := l.d.Rest(s, maxRestStates)
	if key == "" {
		return l.read(s)
	}
	r.mu.Lock()
	found := r.known[key]
	r.mu.Unlock()
	if found != nil {
		return found
	}
	made := l.read(s)
	size := len(key) + made.bytes()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes+size > maxRestsBytes || r.known == nil {
		r.known, r.bytes = map[string]*local{}, 0
	}
	r.known[key] = made
	r.bytes += size
	return made
}

func (r *rests) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}
