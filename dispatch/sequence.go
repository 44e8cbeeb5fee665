package dispatch

import (
	"errors"
	"slices"

	"github.com/heftai/heft/internal/kvcache"
)

// firstTokens is how long a sequence gets before its list of tokens grows.
const firstTokens = 4096

// A Sequence is one request's state in a model: the tokens it holds and the pages of
// their keys and values. It belongs to the goroutine that uses the model.
type Sequence struct {
	model *Model
	kv    *kvcache.Sequence
	// adapter is nil for the model alone.
	adapter *adapter
	class   uint64 // of the rope lengths that its pages may be shared under
	// length is what rotary frequencies were made for last, and tokens what the sequence
	// holds: where the two part, it is computed anew.
	length int
	tokens []int32
}

// NewSequence is an empty sequence. Free it when its request ends.
func (m *Model) NewSequence() *Sequence { return &Sequence{model: m} }

// pages is the sequence in the cache. Only sequences whose keys were made for the same
// rope frequencies may share pages, which the length of the prompt decides.
func (s *Sequence) pages(promptLen int) *kvcache.Sequence {
	if s.kv == nil {
		s.class = s.model.program.RopeClass(promptLen)
		s.kv = s.model.cache.NewSequence(s.scope())
		s.tokens = slices.Grow(s.tokens, max(min(firstTokens, s.model.options.Context)-len(s.tokens), 0))
	}
	return s.kv
}

// Expect says how long the prompt is that the sequence begins with, which decides what
// pages it may share. Without it, the first of [Sequence.Reuse], [Sequence.Reserve] and
// [Model.Forward] tells.
func (s *Sequence) Expect(promptLen int) { s.pages(promptLen) }

// Len is the number of tokens whose keys and values are computed.
func (s *Sequence) Len() int {
	if s.kv == nil {
		return 0
	}
	return s.kv.Committed()
}

// Reserve takes the pages that n further tokens need, or returns ErrKVFull. Layers with a
// window take no more than they hold at once, and go on in what they give back.
func (s *Sequence) Reserve(n int) error { return s.reserve(n, n) }

func (s *Sequence) reserve(n, promptLen int) error {
	err := s.pages(promptLen).Reserve(n, s.model.options.MaxBatchTokens)
	if errors.Is(err, kvcache.ErrFull) {
		return ErrKVFull
	}
	return err
}

// Reuse attaches the pages of earlier prompts that begin as this one does and returns
// the number of tokens that need not be computed again, always less than len(prompt).
// The sequence must be empty.
func (s *Sequence) Reuse(prompt []int32) int {
	if s.Len() > 0 || len(prompt) == 0 {
		return 0
	}
	n := s.pages(len(prompt)).Reuse(prompt)
	s.tokens, s.length = append(s.tokens[:0], prompt[:n]...), len(prompt)
	return n
}

// Truncate forgets the tokens from n on and returns the number of tokens left: n, or 0
// where layers with a window no longer have what the token after them sees.
func (s *Sequence) Truncate(n int) int {
	if s.kv == nil {
		return 0
	}
	n = s.kv.Truncate(n)
	s.tokens = s.tokens[:min(n, len(s.tokens))]
	return n
}

// Free gives the pages back; what they hold may still serve other prompts. The sequence
// is empty afterwards and may be used again.
func (s *Sequence) Free() {
	if s.kv != nil {
		s.kv.Free()
		s.kv, s.length, s.tokens = nil, 0, s.tokens[:0]
	}
}

// KVUsage counts the pages of keys and values.
type KVUsage struct {
	PageTokens int // tokens in a page
	Pages      int // in all
	Used       int // held by sequences
	Cached     int // held by nobody, with contents that a prompt may reuse
	// Tokens of prompts that were looked up, and those of them that were found.
	PrefixQueries, PrefixHits int64
	BytesPerToken             int64 // of a token that every layer sees
	// Capacity is the most tokens that one sequence can have. Layers with a window hold no
	// more of it than they see, so that it may be more than the pages have tokens.
	Capacity int
}

// Free is the number of pages that sequences can still take.
func (u KVUsage) Free() int { return u.Pages - u.Used }
