package generate

import (
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/sample"
)

// Params say how the next token is chosen. The zero value of each field turns it off. The zero
// Params choose the most likely token (greedy decoding). Requests may share a Params.
type Params struct {
	Temperature float64 // divides the logits; below 1e-5 the most likely token is chosen
	TopK        int     // keeps the k most likely tokens
	TopP        float64 // keeps the most likely tokens until their sum reaches p
	MinP        float64 // removes tokens less likely than MinP times the most likely
	// TypicalP keeps the tokens whose surprise is nearest to the entropy until their sum reaches p.
	TypicalP float64
	// TopH keeps the most likely tokens whose share of the entropy is at most TopH.
	TopH float64
	// EpsilonCutoff removes tokens less likely than it, except the most likely.
	EpsilonCutoff float64

	RepetitionPenalty float64 // divides positive logits of tokens seen so far, multiplies negative ones
	PresencePenalty   float64 // is subtracted once from the logit of a generated token
	FrequencyPenalty  float64 // is subtracted for each time that a token was generated
	NoRepeatNGram     int     // forbids repeating a run of this many tokens

	Bias     []Bias    // is added to logits, in order
	BadWords [][]int32 // sequences that are never generated
	Suppress []int32   // tokens that are never chosen
	Allow    []int32   // if not empty, the only tokens that may be chosen

	MinTokens int     // number of tokens before which no token of Stop is chosen
	Stop      []int32 // tokens that end the text, in addition to the model's own
}

// Bias is added to the logit of one token.
type Bias struct {
	ID    int32
	Value float32
}

// LogProb is a token with the natural logarithm of its probability.
type LogProb struct {
	ID      int32
	LogProb float32
}

// Reason says why an answer ended.
type Reason string

// The reasons.
const (
	FinishStop   = Reason(engine.FinishStop)   // a stop token or string, or an embedding
	FinishLength = Reason(engine.FinishLength) // MaxTokens, or the context is full
)

// Validate checks the values for a model with so many token ids.
func (p Params) Validate(vocab int) error {
	q := p.internal()
	return q.Validate(vocab)
}

func (p Params) internal() sample.Params {
	q := sample.Params{
		Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, TypicalP: p.TypicalP, TopH: p.TopH, EpsilonCutoff: p.EpsilonCutoff,
		RepetitionPenalty: p.RepetitionPenalty, PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty, NoRepeatNGram: p.NoRepeatNGram,
		BadWords: p.BadWords, Suppress: p.Suppress, Allow: p.Allow, MinTokens: p.MinTokens, Stop: p.Stop,
	}
	for _, b := range p.Bias {
		q.Bias = append(q.Bias, sample.Bias(b))
	}
	return q
}

func logProbs(top []sample.LogProb) []LogProb {
	if top == nil {
		return nil
	}
	out := make([]LogProb, len(top))
	for i, p := range top {
		out[i] = LogProb(p)
	}
	return out
}
