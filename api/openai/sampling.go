package openai

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/sample"
)

// Bounds of what a request may ask for.
const (
	maxN        = 128
	maxLogProbs = 20
	maxStops    = 64
)

// refused are the unsupported fields of both endpoints.
var refused = []unsupported{
	{"use_beam_search", "there is no beam search."},
	{"guided_json", "answers cannot be constrained."},
	{"guided_regex", "answers cannot be constrained."},
	{"guided_choice", "answers cannot be constrained."},
	{"guided_grammar", "answers cannot be constrained."},
	{"structured_outputs", "answers cannot be constrained."},
	{"bad_words", "use logit_bias."},
	{"chat_template", "a request cannot bring a template."},
	{"prompt_logprobs", "use echo with logprobs of /v1/completions."},
}

// common is what completions and chat completions have in common.
type common struct {
	generate.Request
	id           string
	created      time.Time
	model        *generate.Model
	Stream       bool
	IncludeUsage bool
	ReturnIDs    bool
}

func (c *common) base() *common { return c }

func (c *common) envelope(object string) envelope {
	return envelope{ID: c.id, Object: object, Created: c.created.Unix(), Model: c.model.Name}
}

// decodeCommon reads the fields that say how tokens are chosen and shown. m gives the
// defaults. The request's id begins with prefix.
func decodeCommon(f *fields, m *generate.Model, prefix string) common {
	c := common{id: newID(prefix), created: time.Now(), model: m}
	c.N, c.Seed = 1, rand.Uint64()
	c.Params, c.MaxTokens = m.Defaults()
	decodeParams(f, &c.Params)
	f.integer("n", &c.N, 1, maxN)
	decodeSeed(f, &c.Seed)
	decodeStop(f, &c.Stop)
	vocab := m.Engine.Vocab()
	decodeBias(f, vocab, &c.Params.Bias)
	f.ids("stop_token_ids", &c.Params.Stop, vocab)
	f.ids("allowed_token_ids", &c.Params.Allow, vocab)
	f.boolean("ignore_eos", &c.IgnoreEOS)
	f.boolean("include_stop_str_in_output", &c.IncludeStop)
	f.boolean("return_token_ids", &c.ReturnIDs)
	skip := true
	f.boolean("skip_special_tokens", &skip)
	c.ShowSpecial = !skip
	f.boolean("stream", &c.Stream)
	if o, ok := f.object("stream_options"); ok {
		if !c.Stream {
			f.fail("stream_options", "'stream_options' has a meaning only with 'stream'.")
		}
		o.boolean("include_usage", &c.IncludeUsage)
		if o.err != nil {
			f.fail("stream_options.include_usage", "Invalid type for 'stream_options.include_usage': expected a boolean.")
		}
	}
	f.refuse(refused)
	return c
}

func decodeParams(f *fields, p *sample.Params) {
	f.number("temperature", &p.Temperature, 0, 2)
	f.number("top_p", &p.TopP, 0, 1)
	f.integer("top_k", &p.TopK, -1, math.MaxInt32)
	f.number("min_p", &p.MinP, 0, 1)
	f.number("presence_penalty", &p.PresencePenalty, -2, 2)
	f.number("frequency_penalty", &p.FrequencyPenalty, -2, 2)
	f.number("repetition_penalty", &p.RepetitionPenalty, 0, 100)
	f.integer("min_tokens", &p.MinTokens, 0, math.MaxInt32)
	if _, given := f.get("top_p"); given && p.TopP == 0 {
		p.TopP, p.TopK = 1, 1 // the best alone
	}
	if _, given := f.get("repetition_penalty"); given && p.RepetitionPenalty == 0 {
		f.fail("repetition_penalty", "Invalid value for 'repetition_penalty': it must be above 0.")
	}
}

// decodeSeed takes any whole number, also a negative one.
func decodeSeed(f *fields, to *uint64) {
	raw, ok := f.get("seed")
	if !ok {
		return
	}
	if v, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		*to = v
		return
	}
	v, err := wholeNumber(raw)
	if errors.Is(err, errTooLarge) {
		f.fail("seed", "Invalid value for 'seed': %.40s does not fit 64 bits.", raw)
		return
	}
	if err != nil {
		f.wrongType("seed", "an integer", raw)
		return
	}
	*to = uint64(v)
}

// decodeStop reads a string or a list of them.
func decodeStop(f *fields, to *[]string) {
	raw, ok := f.get("stop")
	if !ok {
		return
	}
	var one string
	var list []string
	if json.Unmarshal(raw, &one) == nil {
		list = []string{one}
	} else if json.Unmarshal(raw, &list) != nil {
		f.wrongType("stop", "a string or a list of strings", raw)
		return
	}
	if len(list) > maxStops {
		f.fail("stop", "Invalid value for 'stop': %d strings, at most %d are allowed.", len(list), maxStops)
	}
	if slices.Contains(list, "") {
		f.fail("stop", "Invalid value for 'stop': a stop string cannot be empty.")
	}
	*to = list
}

// decodeBias reads {"ID": bias}. The order of ids does not matter: each stands once.
func decodeBias(f *fields, vocab int, to *[]sample.Bias) {
	raw, ok := f.get("logit_bias")
	if !ok {
		return
	}
	var byID map[string]float64
	if json.Unmarshal(raw, &byID) != nil {
		f.wrongType("logit_bias", "an object of token ids and numbers", raw)
		return
	}
	for text, v := range byID {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || id < 0 || int(id) >= vocab {
			f.fail("logit_bias", "Invalid key in 'logit_bias': %q is not one of the %d token ids.", text, vocab)
			return
		}
		if v < -100 || v > 100 {
			f.fail("logit_bias", "Invalid value in 'logit_bias': %v is not between -100 and 100.", v)
			return
		}
		*to = append(*to, sample.Bias{ID: int32(id), Value: float32(v)})
	}
	slices.SortFunc(*to, func(a, b sample.Bias) int { return int(a.ID) - int(b.ID) })
}
