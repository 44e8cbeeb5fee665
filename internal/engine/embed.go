package engine

import (
	"errors"
	"fmt"
	"slices"
)

// Pooling selects the final hidden states of a prompt that make its embedding.
type Pooling uint8

// The kinds of pooling.
const (
	PoolNone  Pooling = iota // no embedding: the prompt is continued
	PoolFirst                // the first token's
	PoolLast                 // the last token's
	PoolMean                 // the mean over all tokens
)

// HiddenStates is implemented by the Logits of a model that can return hidden states.
type HiddenStates interface {
	// Hidden returns the hidden state of row i. It is valid until the next pass.
	Hidden(i int) []float32
}

// checkEmbed rejects an embedding request that also requests tokens.
func (r *Request) checkEmbed() error {
	switch {
	case r.Embed > PoolMean:
		return badRequest("embed", "no pooling %d", r.Embed)
	case r.Embed != PoolNone && (r.MaxTokens != 0 || r.N > 1 || r.PromptLogProbs):
		return badRequest("embed", "an embedding of a prompt that is continued or scored")
	}
	return nil
}

// hidden returns the hidden state that the pooling needs from a chunk of n tokens at position at.
func (c *choice) hidden(at, n int) HiddenMode {
	switch embed := c.stream.request.Embed; {
	case embed == PoolFirst && at == 0:
		return HiddenFirst
	case embed == PoolLast && at+n == len(c.tokens):
		return HiddenLast
	case embed == PoolMean:
		return HiddenSum
	}
	return HiddenNone
}

// reuses reports whether c may reuse pages of other prompts. Hidden states of reused tokens are
// unknown.
func (c *choice) reuses() bool {
	embed := c.stream.request.Embed
	return c.scored == c.prompt && (embed == PoolNone || embed == PoolLast)
}

var errNoHidden = errors.New("engine: the model returns no hidden states")

// pool takes the hidden state of row i, and emits the embedding at the end of the prompt.
func (e *Engine) pool(c *choice, i int, logits Logits) error {
	r := &e.rows[i]
	if r.Hidden != HiddenNone {
		states, ok := logits.(HiddenStates)
		if !ok {
			return errNoHidden
		}
		state := states.Hidden(i)
		if len(state) == 0 {
			return errNoHidden
		}
		c.pooled = append(c.pooled[:0], state...)
	}
	end := c.seq.Len()
	if end < c.prompt {
		return nil
	}
	if len(c.pooled) == 0 {
		return fmt.Errorf("engine: %d tokens without a hidden state", end)
	}
	ev := Event{Choice: c.index, Token: NoToken, Embedding: slices.Clone(c.pooled), Finish: FinishStop}
	if c.stream.request.Embed == PoolMean {
		for k := range ev.Embedding {
			ev.Embedding[k] /= float32(c.prompt)
		}
	}
	e.conclude(c, ev)
	return nil
}
