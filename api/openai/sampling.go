package openai

import (
	"math"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// Bounds of what a request may ask for.
const (
	maxN        = 128
	maxLogProbs = 20
)

// common is what completions and chat completions have in common.
type common struct {
	generate.Request
	id              string
	created         time.Time
	model           *generate.Model
	Stream          bool
	IncludeUsage    bool
	ContinuousUsage bool // in every chunk, with IncludeUsage
	ReturnIDs       bool
	NameIDs         bool // log-probabilities call tokens by their ids
	scores          bool // the prompt's log-probabilities are shown, each with the top likeliest ids
	top             int
}

func (c *common) base() *common { return c }

func (c *common) names() openaijson.TokenNames {
	return openaijson.TokenNames{Model: c.model, IDs: c.NameIDs}
}

func (c *common) envelope(object string) envelope {
	return envelope{ID: c.id, Object: object, Created: c.created.Unix(), Model: c.model.Name}
}

// decodeCommon reads the fields that say how tokens are chosen and shown. m gives the
// defaults. The request's id begins with prefix.
func decodeCommon(f *wire.Fields, m *generate.Model, prefix string) common {
	c := common{id: newID(prefix), created: time.Now(), model: m}
	settings.DecodeSampling(f, m, &c.Request)
	f.Integer("n", &c.N, 1, maxN)
	c.Truncate = decodeTruncation(f, m)
	f.Bool("return_token_ids", &c.ReturnIDs)
	f.Bool("return_tokens_as_token_ids", &c.NameIDs)
	f.Bool("stream", &c.Stream)
	if o, ok := f.Object("stream_options"); ok {
		if !c.Stream {
			f.Fail("stream_options", "{} has a meaning only with 'stream'.")
		}
		o.Bool("include_usage", &c.IncludeUsage)
		o.Bool("continuous_usage_stats", &c.ContinuousUsage)
	}
	decodeBestOf(f, c.N)
	return c
}

// decodePromptLogProbs reads prompt_logprobs, after the fields that choose the log-probabilities of the answer. As in vLLM a
// stream does not have those of the prompt.
func (c *common) decodePromptLogProbs(f *wire.Fields) {
	if _, given := f.Raw("prompt_logprobs"); !given && !f.Describes() {
		return
	}
	f.Integer("prompt_logprobs", &c.top, 0, maxLogProbs)
	if c.Stream {
		if c.top > 0 {
			f.Fail("prompt_logprobs", "{} is not supported with 'stream': true.")
		}
		return
	}
	c.scores, c.PromptLogProbs = true, true
	c.TopPrompt = max(c.TopPrompt, c.top)
}

// decodeTruncation reads truncate_prompt_tokens: how many tokens of a prompt are kept, the last ones; -1 is as many as
// the context leaves for the prompt beside a token of an answer. It returns 0 if prompts are not truncated.
func decodeTruncation(f *wire.Fields, m *generate.Model) (most int) {
	if !f.Has("truncate_prompt_tokens") && !f.Describes() {
		return 0
	}
	switch f.Integer("truncate_prompt_tokens", &most, -1, math.MaxInt32); most {
	case 0:
		f.Fail("truncate_prompt_tokens", "Invalid value for {}: it must be -1 or above 0.")
	case -1:
		return max(1, m.Limit()-1)
	}
	return most
}

// lastOf are the last tokens of a prompt, most of them; 0 is all.
func lastOf(list []int32, most int) []int32 {
	if most > 0 && len(list) > most {
		return list[len(list)-most:]
	}
	return list
}

// decodeBestOf checks that all answers are shown: there is no choice of the best ones.
func decodeBestOf(f *wire.Fields, n int) {
	best := n
	if f.Integer("best_of", &best, 1, maxN); best != n {
		f.Fail("best_of", "{} is not supported unless it equals 'n', which is %d.", n)
	}
}
