// Package enginetest has a model without weights, for tests of the engine and of packages above
// it.
//
// The logits after a sequence of tokens are a hash of those tokens and nothing else,
// so tests know the expected result of a request ([Model.After]), whatever its batch. Pages
// and prefix reuse behave as the real ones do. Hooks make passes slow or broken.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heftai/heft/internal/engine"
)

// Model is an engine.Model. Set its fields before the engine starts; zero means the
// default that each names.
type Model struct {
	Width      int           // size of the vocabulary; 0 means 64
	MaxLen     int           // context; 0 means 1024
	PageTokens int           // 0 means 4
	Pages      int           // 0 means 4096
	Most       engine.Limits // of a pass; 0 means any
	Delay      time.Duration // of a pass
	Mute       bool          // returns no hidden states
	Memory     int           // return no hidden states
	// BeforePass, if not nil, is called first in every pass. An error ends the pass.
	BeforePass func(ctx context.Context, rows []engine.Row) error
	// Restore, if not nil, is called by sequences before Reuse. It starts to read a prefix and
	// returns true, or returns false. Reuse is called afterwards, or after it has called ready.
	Restore func(prompt []int32, ready func()) bool

	cache   []*page // pages that a prompt may reuse, the least recently freed first
	used    int
	queries int64
	hits    int64
	out     logits
}

// page has contents that are known once it is full.
type page struct {
	tokens []int32 // all tokens up to its end, from the beginning of the sequence
	refs   int
}

// Vocab is the width of the vocabulary.
func (m *Model) Vocab() int { return or(m.Width, 64) }

// Context is the longest sequence.
func (m *Model) Context() int { return or(m.MaxLen, 1024) }

func (m *Model) pageTokens() int { return or(m.PageTokens, 4) }

func (m *Model) pages() int { return or(m.Pages, 4096) }

func or(v, zero int) int {
	if v == 0 {
		return zero
	}
	return v
}

// KV counts pages.
func (m *Model) KV() engine.KV {
	kv := engine.KV{PageTokens: m.pageTokens(), Pages: m.pages(), Used: m.used, Queries: m.queries, Hits: m.hits}
	for _, p := range m.cache {
		if p.refs == 0 {
			kv.Cached++
		}
	}
	return kv
}

// Limits is Most.
func (m *Model) Limits() engine.Limits { return m.Most }

// NewSequence makes an empty sequence.
func (m *Model) NewSequence(promptLen int) engine.Sequence {
	return &sequence{model: m, prompt: promptLen}
}

// After returns the row of logits that follows tokens.
func (m *Model) After(tokens []int32) []float32 {
	row := make([]float32, m.Vocab())
	fill(row, m.hash(tokens))
	return row
}

// hash is of what the logits after tokens depend on.
func (m *Model) hash(tokens []int32) uint64 {
	if m.Memory > 0 {
		tokens = tokens[max(len(tokens)-m.Memory, 0):]
	}
	return digest(0, tokens)
}

func digest(h uint64, tokens []int32) uint64 {
	for _, t := range tokens {
		h = mix(h ^ mix(uint64(t)+1))
	}
	return h
}

func fill(row []float32, h uint64) {
	for i := range row {
		row[i] = float32(mix(h+uint64(i))>>40) / (1 << 21) // 0 up to 8
	}
}

// mix is splitmix64's finaliser.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sequence holds tokens and pages.
type sequence struct {
	model  *Model
	prompt int
	tokens []int32
	pages  []*page
	freed  bool
}

func (s *sequence) Len() int { return len(s.tokens) }

func (s *sequence) Reserve(n int) error {
	m := s.model
	size := m.pageTokens()
	take := max((len(s.tokens)+n+size-1)/size-len(s.pages), 0)
	if m.used+take > m.pages() {
		return engine.ErrKVFull
	}
	for range take {
		s.pages = append(s.pages, &page{refs: 1})
	}
	m.used += take
	for i := 0; m.used+m.KV().Cached > m.pages(); {
		if m.cache[i].refs == 0 {
			m.cache = slices.Delete(m.cache, i, i+1)
		} else {
			i++
		}
	}
	return nil
}

// Truncate forgets the tokens from n on and frees the pages behind them.
func (s *sequence) Truncate(n int) int {
	size := s.model.pageTokens()
	s.tokens = s.tokens[:min(n, len(s.tokens))]
	s.release(min((len(s.tokens)+size-1)/size, len(s.pages)))
	if len(s.tokens)%size != 0 {
		s.unregister(len(s.pages) - 1)
	}
	return len(s.tokens)
}

// unregister makes page i one that the sequence may write again.
func (s *sequence) unregister(i int) {
	p := s.pages[i]
	if p.tokens == nil {
		return
	}
	if p.refs > 1 {
		p.refs--
		s.model.used++
		s.pages[i] = &page{refs: 1}
		return
	}
	p.tokens = nil
	s.model.cache = slices.DeleteFunc(s.model.cache, func(q *page) bool { return q == p })
}

// Restore calls the model's.
func (s *sequence) Restore(prompt []int32, ready func()) bool {
	return s.model.Restore != nil && s.model.Restore(prompt, ready)
}

func (s *sequence) Reuse(tokens []int32) int {
	m := s.model
	if len(tokens) != s.prompt || len(s.pages) > 0 {
		panic("enginetest: Reuse comes first, with the whole prompt")
	}
	m.queries += int64(len(tokens))
	size := m.pageTokens()
	for end := size; end < len(tokens); end += size {
		i := slices.IndexFunc(m.cache, func(p *page) bool { return slices.Equal(p.tokens, tokens[:end]) })
		if i < 0 {
			break
		}
		p := m.cache[i]
		if p.refs == 0 {
			m.used++
		}
		p.refs++
		s.pages = append(s.pages, p)
	}
	n := len(s.pages) * size
	s.tokens = append(s.tokens, tokens[:n]...)
	m.hits += int64(n)
	return n
}

func (s *sequence) Free() {
	if s.freed {
		panic("enginetest: a sequence was freed twice")
	}
	s.freed = true
	s.release(0)
}

// release frees the pages from index from on.
func (s *sequence) release(from int) {
	for i := len(s.pages) - 1; i >= from; i-- {
		p := s.pages[i]
		if p.refs--; p.refs == 0 {
			s.model.used--
			if at := slices.Index(s.model.cache, p); at >= 0 {
				s.model.cache = append(slices.Delete(s.model.cache, at, at+1), p)
			}
		}
	}
	s.pages = s.pages[:from]
}

// push adds tokens and writes logits of all, or of the last, to out.
func (s *sequence) push(tokens []int32, mode engine.LogitsMode, out *logits) {
	for i, t := range tokens {
		s.tokens = append(s.tokens, t)
		if mode == engine.LogitsAll || mode == engine.LogitsLast && i == len(tokens)-1 {
			fill(out.row(s.model.Vocab()), s.model.hash(s.tokens))
		}
		if size := s.model.pageTokens(); len(s.tokens)%size == 0 {
			s.register(s.pages[len(s.tokens)/size-1])
		}
	}
}

func (s *sequence) register(p *page) {
	if p.tokens == nil {
		p.tokens = slices.Clone(s.tokens)
		s.model.cache = append(s.model.cache, p)
	}
}

// ErrBadPass says that the engine broke the rules of Forward.
var ErrBadPass = errors.New("enginetest: the engine broke the rules of Forward")

// Forward computes rows after Delay.
func (m *Model) Forward(ctx context.Context, rows []engine.Row) (engine.Logits, error) {
	if m.BeforePass != nil {
		if err := m.BeforePass(ctx, rows); err != nil {
			return nil, err
		}
	}
	if m.Delay > 0 {
		select {
		case <-time.After(m.Delay):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.out.reset()
	if err := m.check(rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		s := r.Sequence.(*sequence)
		m.out.hidden = append(m.out.hidden, s.hidden(&r))
		s.push(r.Tokens, r.Logits, &m.out)
		m.out.first = append(m.out.first, len(m.out.values)/m.Vocab())
	}
	m.out.vocab = m.Vocab()
	if m.Mute {
		return struct{ engine.Logits }{&m.out}, nil
	}
	return &m.out, nil
}

// State returns the hidden state of the last of tokens: four numbers that depend on all of them.
func (m *Model) State(tokens []int32) []float32 {
	state := make([]float32, 4)
	fill(state, digest(7, tokens))
	return state
}

// hidden is the hidden state that a row asks for, before its tokens are pushed.
func (s *sequence) hidden(r *engine.Row) []float32 {
	if r.Hidden == engine.HiddenNone {
		return nil
	}
	tokens, n := slices.Concat(s.tokens, r.Tokens), len(s.tokens)
	switch r.Hidden {
	case engine.HiddenFirst:
		return s.model.State(tokens[:n+1])
	case engine.HiddenLast:
		return s.model.State(tokens)
	case engine.HiddenAll:
		var states []float32
		for i := range r.Tokens {
			states = append(states, s.model.State(tokens[:n+i+1])...)
		}
		return states
	case engine.HiddenSum:
		sum := slices.Clone(r.Sum)
		for i := range r.Tokens {
			state := s.model.State(tokens[:n+i+1])
			if sum == nil {
				sum = make([]float32, len(state))
			}
			for k, v := range state {
				sum[k] += v
			}
		}
		return sum
	}
	return nil
}

// check holds the engine to the rules of Forward.
func (m *Model) check(rows []engine.Row) error {
	var sum engine.Limits
	for i, r := range rows {
		s := r.Sequence.(*sequence)
		room := min(len(s.pages)*m.pageTokens(), m.Context())
		if s.freed || len(r.Tokens) == 0 || s.Len()+len(r.Tokens) > room || r.PromptLen != s.prompt {
			return fmt.Errorf("%w: row %d, %d tokens after %d with room for %d, prompt of %d or %d",
				ErrBadPass, i, len(r.Tokens), s.Len(), room, r.PromptLen, s.prompt)
		}
		sum.Tokens += len(r.Tokens)
		sum.Sequences++
		switch r.Logits {
		case engine.LogitsLast:
			sum.LogitRows++
		case engine.LogitsAll:
			sum.LogitRows += len(r.Tokens)
		}
	}
	if over(sum.Tokens, m.Most.Tokens) || over(sum.Sequences, m.Most.Sequences) || over(sum.LogitRows, m.Most.LogitRows) {
		return fmt.Errorf("%w: %+v, at most %+v", ErrBadPass, sum, m.Most)
	}
	return nil
}

func over(n, most int) bool { return most > 0 && n > most }

type logits struct {
	vocab  int
	first  []int
	values []float32
	hidden [][]float32
}

func (l *logits) reset() {
	l.first, l.values, l.hidden = append(l.first[:0], 0), l.values[:0], l.hidden[:0]
}

func (l *logits) row(vocab int) []float32 {
	at := len(l.values)
	l.values = slices.Grow(l.values, vocab)[:at+vocab]
	return l.values[at:]
}

// Hidden implements engine.HiddenStates.
func (l *logits) Hidden(i int) []float32 { return l.hidden[i] }

// Row is the logits of row i.
func (l *logits) Row(i int) (count int, values []float32) {
	a, b := l.first[i], l.first[i+1]
	return b - a, l.values[a*l.vocab : b*l.vocab]
}

var (
	_ engine.Model    = (*Model)(nil)
	_ engine.Sequence = (*sequence)(nil)
	_ engine.Logits   = (*logits)(nil)

	_ engine.HiddenStates = (*logits)(nil)
)
