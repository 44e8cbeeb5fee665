package engine

import (
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/sample"
)

// choice is one continuation of a request. Fields without another comment belong to the engine's
// goroutine.
type choice struct {
	stream     *Stream
	index      int
	ticket     uint64 // order of arrival, from when it last was stalled; the background's behind all others: the highest is the youngest
	tokens     []int32
	prompt     int // how many of tokens are the prompt
	max        int // how many tokens there may be in all
	src        sample.Source
	constraint Constraint   // nil: any id may follow
	mask       []uint64     // the constraint's mask for the next token; nil: not computed yet
	unscored   int          // forced tokens whose log-probability is not known: the last of tokens
	seq        Sequence     // nil unless running
	restoring  *atomic.Bool // nil unless the prefix is being read; true when it is read
	attached   bool         // it had its pages once
	lacks      bool         // its adapter had no room since memory was last freed
	queues     bool         // its adapter has had no room, and the model keeps a turn for it
	parked     bool         // it waits because its stream stalled
	since      time.Time    // when it began to wait
	chunk      int          // tokens of this step
	most       int          // tokens that this step may have
	decodes    bool         // the tokens of this step were generated
	reused     int          // tokens of the prompt that were not computed, at first
	scored     int          // tokens of the prompt whose log-probability is known
	pooled     []float32    // of an embedding, so far
	guesser
	ended   bool
	stopped atomic.Bool // by the reader
	inStep  bool        // guarded by engine.mu
	dropped bool        // no reader waits for it; guarded by engine.mu

	admitted, first, last time.Time // of the slot, the first and the last token
	queued                time.Duration
}

// reserveTokens bounds the room for generated ids that is allocated ahead.
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

// pending is the number of tokens that are known but not computed.
func (c *choice) pending() int { return len(c.tokens) - c.seq.Len() }

func (c *choice) generated() int { return len(c.tokens) - c.prompt }

// scores reports whether n more tokens yield unknown log-probabilities of the prompt. The logits at
// position i are those of token i+1.
func (c *choice) scores(n int) bool {
	return c.scored < min(c.seq.Len()+n+1, c.prompt)
}

// follows reports whether the choice should wait until choice 0 has computed the prompt, because it
// can then reuse the pages.
func (c *choice) follows() bool {
	if c.index == 0 || c.generated() > 0 {
		return false
	}
	lead := &c.stream.choices[0]
	return !lead.ended && lead.generated() == 0
}

// row is the choice's part of the next pass.
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
