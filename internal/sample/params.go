package sample

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrNotFinite says that logits hold a NaN or +Inf: the forward pass went wrong.
	ErrNotFinite = errors.New("sample: logits are not finite")
	// ErrNoCandidate says that every id of the vocabulary is forbidden or at -Inf.
	ErrNoCandidate = errors.New("sample: no token is allowed")
)

// Bias is added to the logit of one id.
type Bias struct {
	ID    int32
	Value float32
}

// Params are the sampling parameters of one request. The zero value of each field turns it off, and
// the zero Params is greedy. Params are only read: requests may share them.
type Params struct {
	// Temperature divides the logits. Below 1e-5 the best id is taken (the lowest
	// one of equals) and no filter plays a part.
	Temperature float64
	// TopK keeps the k best and what ties with the k-th. Negative is off too.
	TopK int
	// TopP keeps the best ids until their sum reaches p, the crossing one included.
	// 0 and 1 are off: OpenAI's top_p of 0, the best alone, is TopK 1.
	TopP float64
	// MinP removes ids that are less likely than MinP times the best one.
	MinP float64
	// TypicalP keeps the ids whose surprise is nearest to the entropy until their sum
	// reaches p, the crossing one included. 0 and 1 are off.
	TypicalP float64
	// TopH keeps, of the 100 best, the leading ones whose share of the entropy is at
	// most TopH.
	TopH float64
	// EpsilonCutoff removes ids that are less likely than it, but never the best one.
	EpsilonCutoff float64

	// RepetitionPenalty divides a positive logit, and multiplies a negative one, of
	// each id of the prompt and of what was generated. 0 and 1 are off.
	RepetitionPenalty float64
	// PresencePenalty is subtracted once, FrequencyPenalty once per occurrence, for
	// ids that were generated (OpenAI).
	PresencePenalty, FrequencyPenalty float64
	// NoRepeatNGram forbids the id that would repeat a run of n ids, prompt included.
	NoRepeatNGram int

	// Bias entries are added in order; an id may have several.
	Bias []Bias
	// BadWords are sequences of ids of which the last is forbidden after the others.
	BadWords [][]int32
	// Suppress are ids that are never chosen.
	Suppress []int32
	// Allow, if not empty, are the only ids that may be chosen.
	Allow []int32

	// MinTokens forbids the ids of Stop until so many ids were generated.
	MinTokens int
	// Stop are the ids that end the text. Choosing one ends nothing here: the caller
	// looks at what it gets.
	Stop []int32
}

// Default is OpenAI's: temperature 1 and nothing else.
func Default() Params { return Params{Temperature: 1, TopP: 1} }

// greedyBelow is the temperature under which the best id is simply taken: dividing
// by less separates even neighbouring float32 logits.
const greedyBelow = 1e-5

// Greedy reports whether the best id is taken, with no randomness.
func (p *Params) Greedy() bool { return p.Temperature < greedyBelow }

// Validate names the first field whose value has no meaning, for a vocabulary of so
// many ids.
func (p *Params) Validate(vocab int) error {
	for _, f := range []struct {
		name     string
		v        float64
		min, max float64
	}{
		{"temperature", p.Temperature, 0, math.MaxFloat64},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"typical_p", p.TypicalP, 0, 1},
		{"top_h", p.TopH, 0, 1},
		{"epsilon_cutoff", p.EpsilonCutoff, 0, 1},
		{"repetition_penalty", p.RepetitionPenalty, 0, math.MaxFloat32},
		{"presence_penalty", p.PresencePenalty, -math.MaxFloat32, math.MaxFloat32},
		{"frequency_penalty", p.FrequencyPenalty, -math.MaxFloat32, math.MaxFloat32},
		{"no_repeat_ngram", float64(p.NoRepeatNGram), 0, math.MaxInt32},
		{"min_tokens", float64(p.MinTokens), 0, math.MaxInt32},
	} {
		if !(f.v >= f.min && f.v <= f.max) {
			return fmt.Errorf("sample: %s is %v, outside %v..%v", f.name, f.v, f.min, f.max)
		}
	}
	return p.validateIDs(vocab)
}

func (p *Params) validateIDs(vocab int) error {
	for i, b := range p.Bias {
		if b.ID < 0 || int(b.ID) >= vocab {
			return fmt.Errorf("sample: bias entry %d: id %d is outside the vocabulary of %d", i, b.ID, vocab)
		}
		if v := float64(b.Value); math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sample: bias entry %d: value %v is not finite", i, v)
		}
	}
	for i, w := range p.BadWords {
		if len(w) == 0 {
			return fmt.Errorf("sample: bad word %d is empty", i)
		}
	}
	for i, id := range p.Allow {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("sample: allowed entry %d: id %d is outside the vocabulary of %d", i, id, vocab)
		}
	}
	return nil
}

// Step is the state that one choice looks at. Slices are only read.
type Step struct {
	// Prompt and Generated are the ids so far. Ids outside the vocabulary (the
	// embedding may be larger than the head) count for n-grams only.
	Prompt, Generated []int32
	// Mask, if not nil, has bit id%64 of word id/64 set for each id that is allowed
	// now; it must cover the vocabulary.
	Mask []uint64
	// MayEnd allows the ids of Stop before MinTokens ids were generated.
	MayEnd bool
}

// at is the id at position i of prompt and generated together.
func (s *Step) at(i int) int32 {
	if i < len(s.Prompt) {
		return s.Prompt[i]
	}
	return s.Generated[i-len(s.Prompt)]
}

func (s *Step) len() int { return len(s.Prompt) + len(s.Generated) }
