package grammar

import "sync"

// rests shares locals between states of different lexers that accept the same rests of texts. In
// many schemas keys and strings start differently and continue alike; the vocabulary is then walked
// only once.
type rests struct {
	mu    sync.Mutex
	known map[string]*local // by dfa.DFA.Rest
	bytes int
}

const (
	maxRestStates = 64  // maximum number of states of an automaton that is compared
	minRestBytes  = 128 // minimum number of possible next bytes: with fewer the walk is short
	maxRestsBytes = 4 << 20
)

// local returns what state s of l can read.
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
