package engine

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/sample"
)

// choice is one continuation of a request. Fields without another comment belong to the engine's
// goroutine.
type choice struct {
	stream        *Stream
	index         int
	ticket        uint64 // order of arrival, updated when it stalls; background choices are after all others; the highest is the youngest
	tokens        []int32
	prompt        int // number of prompt tokens in tokens
	max           int // maximum number of tokens
	src           sample.Source
	constraint    Constraint   // nil if any id may follow
	mask          []uint64     // the constraint's mask for the next token; nil if not computed yet
	drawn         drawn        // the next token, if drawAll has chosen it
	unscored      int          // forced tokens at the end of tokens whose log-probability is unknown
	seq           Sequence     // nil unless running
	restoring     *atomic.Bool // nil unless the prefix is being read; true when it is read
	attached      bool         // it has had its pages
	noAdapterRoom bool         // no room for its adapter since memory was last freed
	queues        bool         // no room for its adapter, and the model holds a turn for it
	parked        bool         // it waits because its stream stalled
	since         time.Time    // when it began to wait
	chunk         int          // tokens in this step
	most          int          // maximum number of tokens in this step
	decodes       bool         // the tokens of this step were generated
	reused        int          // prompt tokens that were not computed at first
	scored        int          // prompt tokens whose log-probability is known
	pooled        []float32    // the embedding so far
	guesser
	ended   bool
	stopped atomic.Bool // by the reader
	inStep  bool        // guarded by engine.mu
	dropped bool        // no reader waits for it; guarded by engine.mu

	admitted, first, last time.Time // times of getting a slot, the first and the last token
	queued                time.Duration
}

// reserveTokens is the maximum capacity for generated ids that is allocated in advance.
const reserveTokens = 4096

func (c *choice) init(s *Stream, index, limit int) {
	r := &s.request
	c.stream, c.index, c.prompt = s, index, len(r.Prompt)
	c.max = limit
	if r.MaxTokens >= 0 && r.MaxTokens < limit-c.prompt {
		c.max = c.prompt + r.MaxTokens
	}
	c.tokens = make([]int32, c.prompt, min(c.max, c.prompt+reserveTokens))
	copy(c.tokens, r.Prompt)
	c.src = sample.NewSource(r.Seed, index)
	c.constrain()
	c.scored = 1
	if index > 0 || !r.PromptLogProbs {
		c.scored = c.prompt
	}
}

// pending returns the number of tokens that are known but not computed.
func (c *choice) pending() int { return len(c.tokens) - c.seq.Len() }

// reached reports whether the computed row r of c has the logits of its next token.
func (c *choice) reached(r Row) bool { return r.Logits != LogitsNone && c.pending() == 0 }

func (c *choice) generated() int { return len(c.tokens) - c.prompt }

// scores reports whether computing n more tokens yields unknown log-probabilities of the prompt.
// The logits at position i are those of token i+1.
func (c *choice) scores(n int) bool {
	return c.scored < min(c.seq.Len()+n+1, c.prompt)
}

// follows reports whether the choice should wait until choice 0 has computed the prompt, because
// it can then reuse the pages.
func (c *choice) follows() bool {
	if c.index == 0 || c.generated() > 0 {
		return false
	}
	lead := &c.stream.choices[0]
	return !lead.ended && lead.generated() == 0
}

// row returns the choice's part of the next pass.
func (c *choice) row() Row {
	at := c.seq.Len()
	r := Row{Sequence: c.seq, Tokens: c.tokens[at:min(at+c.chunk, len(c.tokens))], PromptLen: c.prompt}
	switch {
	case c.taken > 0:
		r.Tokens, r.Logits = c.verified(at), LogitsAll
	case c.stream.request.Embed != PoolNone:
		r.Hidden = c.hidden(at, c.chunk)
		if r.Hidden == HiddenSum && at > 0 {
			r.Sum = c.pooled
		}
	case c.scores(c.chunk), c.unscored > 0 && at+c.chunk >= len(c.tokens)-c.unscored:
		r.Logits = LogitsAll
	case at+c.chunk == len(c.tokens):
		r.Logits = LogitsLast
	}
	return r
}
