package openai

import (
	"math"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// Bounds of fields.
const (
	maxN        = 128
	maxLogProbs = 20
)

// common has the fields that completions and chat completions share.
type common struct {
	generate.Request
	id              string
	created         time.Time
	model           *generate.Model
	Stream          bool
	IncludeUsage    bool
	ContinuousUsage bool // usage in every chunk; needs IncludeUsage
	ReturnIDs       bool
	NameIDs         bool // log-probabilities name tokens by their ids
	scores          bool // the prompt's log-probabilities are shown
	top             int
}

func (c *common) base() *common { return c }

func (c *common) names() openaijson.TokenNames {
	return openaijson.TokenNames{Model: c.model, IDs: c.NameIDs}
}

func (c *common) envelope(object string) envelope {
	return envelope{ID: c.id, Object: object, Created: c.created.Unix(), Model: c.model.Name}
}

// decodeCommon reads the fields that say how tokens are chosen and shown. The defaults are those of
// m. The request's id starts with prefix.
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

// decodePromptLogProbs reads prompt_logprobs. It needs the fields of the answer's
// log-probabilities. As in vLLM, a stream does not contain those of the prompt.
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

// decodeTruncation reads truncate_prompt_tokens: how many tokens of a prompt are kept, counted from
// its end. -1 means as many as the context holds besides one token of the answer. It returns 0 if
// prompts are not truncated.
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

// lastOf returns the last most tokens of a prompt, or all of them if most is 0.
func lastOf(list []int32, most int) []int32 {
	if most > 0 && len(list) > most {
		return list[len(list)-most:]
	}
	return list
}

// decodeBestOf checks that best_of equals n, because the server does not select the best answers.
func decodeBestOf(f *wire.Fields, n int) {
	best := n
	if f.Integer("best_of", &best, 1, maxN); best != n {
		f.Fail("best_of", "{} is not supported unless it equals 'n', which is %d.", n)
	}
}
