package dispatch

import (
	"errors"
	"slices"

	"github.com/heftai/heft/internal/kvcache"
)

// firstTokens is the initial capacity of a sequence's list of tokens.
const firstTokens = 4096

// A Sequence is the state of one request in a model: its tokens, and the KV cache pages with
// their keys and values. Only the goroutine that uses the model may use it.
type Sequence struct {
	model *Model
	kv    *kvcache.Sequence
	// adapter is nil if the sequence has none.
	adapter  *adapter
	released bool   // the adapter is no longer used; see AddAdapter
	class    uint64 // of rope lengths: only sequences of the same class share pages
	salt     string // see Salt
	// length is the length that the rotary frequencies were computed for. tokens are the tokens
	// of the sequence. If a new length needs other frequencies, the sequence is computed again.
	length   int
	tokens   []int32
	restored bool   // Restore was called
	batch    uint64 // the last batch of [Model.Forward] that has the sequence
}

// NewSequence returns an empty sequence. Call [Sequence.Free] when its request ends.
func (m *Model) NewSequence() *Sequence { return &Sequence{model: m} }

// pages returns the sequence in the cache. Sequences share pages only if their keys have the same
// rotary frequencies, which the length of the prompt decides.
func (s *Sequence) pages(promptLen int) *kvcache.Sequence {
	if s.kv == nil {
		s.class = s.model.pageClass(promptLen, promptLen)
		s.kv = s.model.cache.NewSequence(s.class)
		s.share()
		s.tokens = slices.Grow(s.tokens, max(min(firstTokens, s.model.settings.Context)-len(s.tokens), 0))
	}
	return s.kv
}

// Expect sets the length of the prompt, which decides which pages the sequence may share. Without
// it the first call of [Sequence.Reuse], [Sequence.Reserve] or [Model.Forward] sets the length.
func (s *Sequence) Expect(promptLen int) {
	if s.check() == nil {
		s.pages(promptLen)
	}
}

// Len returns the number of tokens whose keys and values are computed.
func (s *Sequence) Len() int {
	if s.kv == nil {
		return 0
	}
	return s.kv.Committed()
}

// Together returns how many of the next n tokens may be computed in one row with the same bits as
// one by one. It is at least one. The tokens end before the length at which rotary frequencies
// change for all tokens. In a model with states they end with a page, where a prefix can be
// shared.
func (s *Sequence) Together(n int) int {
	if n = max(n, 1); s.check() != nil {
		return n
	}
	if len(s.model.program.States()) > 0 {
		size := s.model.cache.Config().PageTokens
		n = min(n, size-s.Len()%size)
	}
	length := max(s.length, s.Len()+1)
	for n > 1 && s.model.program.Restarts(length, s.Len()+n) {
		n--
	}
	return n
}

// Reserve takes the pages for n more tokens. It returns ErrKVFull, and takes no page, if too few
// are free. A layer with an attention window reuses its own pages beyond the window.
func (s *Sequence) Reserve(n int) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.reserve(n, n)
}

func (s *Sequence) reserve(n, promptLen int) error {
	kv, pass := s.pages(promptLen), s.model.settings.MaxBatchTokens
	if err := s.detach(n); err != nil {
		return err
	}
	s.model.takeBackKV(kv, n, pass)
	err := kv.Reserve(n, pass)
	if errors.Is(err, kvcache.ErrFull) && s.model.growKV(kv.Missing(n, pass)) {
		err = kv.Reserve(n, pass)
	}
	if errors.Is(err, kvcache.ErrFull) {
		return ErrKVFull
	}
	return err
}

// detach gives the sequence pages of its own if its next n tokens make [Model.Forward] recompute
// it. Otherwise the shared pages would be lost to the other sequences.
func (s *Sequence) detach(n int) error {
	if s.Len() == 0 || !s.model.program.Restarts(s.length, s.Len()+n) {
		return nil
	}
	missing, err := s.kv.Detach()
	if errors.Is(err, kvcache.ErrFull) && s.model.growKV(missing) {
		_, err = s.kv.Detach()
	}
	if errors.Is(err, kvcache.ErrFull) {
		return ErrKVFull
	}
	return err
}

// Restore starts to read the pages of a prompt's prefix that are in Options.KVStore and not in
// memory. It returns false if there is nothing to read or no room for the prompt;
// [Sequence.Reuse] then uses the pages in memory. If it returns true, another goroutine calls
// ready when all pages are read. Until then only Free may be called, which cancels the reads.
// Call Reuse next, with the same prompt. The sequence must be empty.
func (s *Sequence) Restore(prompt []int32, ready func()) bool {
	if s.check() != nil || s.model.options.KVStore == nil || s.Len() > 0 || len(prompt) == 0 {
		return false
	}
	kv, pass := s.pages(len(prompt)), s.model.settings.MaxBatchTokens
	s.model.takeBackKV(kv, len(prompt), pass)
	if missing := kv.Missing(len(prompt), pass); missing > 0 {
		s.model.growKV(missing)
	}
	s.restored = true
	return kv.Restore(prompt, pass, ready)
}

// Reuse attaches the pages of earlier prompts with the same prefix. It reads pages that only
// Options.KVStore has, unless Restore was called. It returns the number of tokens that need no
// computation, which is always less than len(prompt). The sequence must be empty.
func (s *Sequence) Reuse(prompt []int32) int {
	if s.check() != nil || s.Len() > 0 || len(prompt) == 0 {
		return 0
	}
	s.pages(len(prompt))
	if s.model.options.KVStore != nil && !s.restored {
		s.makeRoom(prompt)
	}
	n := s.kv.Reuse(prompt)
	s.tokens, s.length = append(s.tokens[:0], prompt[:n]...), len(prompt)
	return n
}

// Truncate removes the tokens from n on. It returns the number of tokens left. That is n, or 0 if
// a layer with an attention window has already released pages that the next token needs.
func (s *Sequence) Truncate(n int) int {
	if s.kv == nil {
		return 0
	}
	n = s.kv.Truncate(n)
	s.tokens = s.tokens[:min(n, len(s.tokens))]
	return n
}

// Seal stops other sequences from reusing what s computes from now on. Use it with models that
// join (see [Model.Joins]): their keys and values depend on hidden states, not on the tokens
// alone.
func (s *Sequence) Seal() {
	if s.kv != nil {
		s.kv.Seal()
	}
}

// Free releases the pages. Later prompts may still reuse their contents. Afterwards the sequence
// is empty and may be used again.
func (s *Sequence) Free() {
	if s.kv != nil {
		s.kv.Free()
		s.model.restKV()
		s.kv, s.length, s.tokens, s.salt, s.restored = nil, 0, s.tokens[:0], "", false
	}
	s.release()
}

// KVUsage counts the pages of the KV cache.
type KVUsage struct {
	PageTokens int // tokens per page
	Pages      int // total
	Used       int // held by sequences
	Cached     int // free, with contents that a prompt may reuse
	// PrefixQueries counts the prompt tokens that were looked up, PrefixHits those that were
	// found.
	PrefixQueries, PrefixHits int64
	BytesPerToken             int64 // of a token in all layers
	// Capacity is the maximum number of tokens in one sequence. It may exceed the tokens of all
	// pages, because a layer with an attention window keeps only the tokens inside the window.
	Capacity int
}

// Free returns the number of pages that sequences can still take.
func (u KVUsage) Free() int { return u.Pages - u.Used }
