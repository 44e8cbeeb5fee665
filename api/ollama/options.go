package ollama

import (
	"math"
	"math/rand/v2"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// Bounds of options.
const (
	maxTemperature = 100
	maxPenalty     = 100
)

// unsupportedOptions change Ollama's answer, and this server does not implement them.
var unsupportedOptions = []wire.Unsupported{
	{Field: "mirostat", Reason: "there is no such sampler.", Off: []string{"0"}},
	{Field: "mirostat_tau", Reason: "there is no such sampler.", Off: []string{"5"}, With: []string{"mirostat"}},
	{Field: "mirostat_eta", Reason: "there is no such sampler.", Off: []string{"0.1"}, With: []string{"mirostat"}},
	{Field: "tfs_z", Reason: "there is no such sampler.", Off: []string{"0", "1"}},
	{Field: "penalize_newline", Reason: "penalties count every token.", Off: []string{"true"}},
	{Field: "vocab_only", Reason: "the weights are served, too."},
	{Field: "embedding_only", Reason: "use /api/embed."},
	{Field: "rope_frequency_base", Reason: "the model's own files say how positions are encoded.", Off: []string{"0"}},
	{Field: "rope_frequency_scale", Reason: "the model's own files say how positions are encoded.", Off: []string{"0"}},
}

// decodeOptions reads the field "options": sampling parameters and stop conditions. The defaults
// are the model's. Without a seed in the request the seed is random.
func (q *request) decodeOptions(f *wire.Fields) {
	q.N, q.Seed = 1, rand.Uint64()
	q.Params, q.MaxTokens = q.model.Defaults()
	q.Trim = true
	o, ok := f.Object("options")
	if !ok {
		return
	}
	o.Refuse(unsupportedOptions)
	p := &q.Params
	o.Number("temperature", &p.Temperature, 0, maxTemperature)
	o.Integer("top_k", &p.TopK, -1, math.MaxInt32)
	o.Number("top_p", &p.TopP, 0, 1)
	o.Number("min_p", &p.MinP, 0, 1)
	o.Number("typical_p", &p.TypicalP, 0, 1)
	if o.Has("top_p") && p.TopP == 0 {
		p.TopP, p.TopK = 1, 1 // the most likely token only
	}
	q.decodePenalties(o)
	q.decodeSeed(o)
	q.decodeLength(o)
	settings.DecodeStop(o, &q.Stop)
}

// decodePenalties reads the penalties. They count the whole text. Of Ollama's windows only the
// whole text and the empty window are therefore accepted.
func (q *request) decodePenalties(o *wire.Fields) {
	p := &q.Params
	o.Number("presence_penalty", &p.PresencePenalty, -maxPenalty, maxPenalty)
	o.Number("frequency_penalty", &p.FrequencyPenalty, -maxPenalty, maxPenalty)
	o.Number("repeat_penalty", &p.RepetitionPenalty, 0, maxPenalty)
	if o.Has("repeat_penalty") && p.RepetitionPenalty == 0 {
		o.Fail("repeat_penalty", "Invalid value for {}: it must be above 0.")
	}
	window := -1
	o.Integer("repeat_last_n", &window, -1, math.MaxInt32)
	off := p.PresencePenalty == 0 && p.FrequencyPenalty == 0 && (p.RepetitionPenalty == 0 || p.RepetitionPenalty == 1)
	switch {
	case window == 0:
		p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = 0, 0, 0
	case window > 0 && !off:
		o.Fail("repeat_last_n", "{} is not supported: penalties count the whole text; use -1, or 0 for no penalty.")
	}
}

// decodeSeed reads an integer. As without the field, -1 means a random seed.
func (q *request) decodeSeed(o *wire.Fields) {
	seed := -1
	if o.Integer("seed", &seed, math.MinInt, math.MaxInt); seed != -1 {
		q.Seed = uint64(seed)
	}
}

// decodeLength reads the maximum length of the answer, and of prompt and answer together.
func (q *request) decodeLength(o *wire.Fields) {
	if o.Has("num_predict") {
		if o.Integer("num_predict", &q.MaxTokens, -2, math.MaxInt32); q.MaxTokens <= 0 {
			q.MaxTokens = -1 // the rest of the context
		}
	}
	o.Integer("num_ctx", &q.context, 1, math.MaxInt32)
}

// fit limits prompt and answer to num_ctx. A value above the server's own context has no effect.
func (q *request) fit() error {
	if q.context == 0 || q.context >= q.model.Limit() {
		return nil
	}
	rest := q.context - len(q.Prompt)
	if rest < 1 {
		return &wire.Error{Kind: wire.TooLong, Field: "options.num_ctx", Message: tooLong(len(q.Prompt), q.context)}
	}
	if q.MaxTokens < 0 || q.MaxTokens > rest {
		q.MaxTokens = rest
	}
	return nil
}

// params returns the default parameters in the form of Ollama's /api/show.
func params(m *generate.Model) (list []struct {
	name  string
	value float64
}) {
	p, _ := m.Defaults()
	for _, d := range []struct {
		name  string
		value float64
	}{{"temperature", p.Temperature}, {"top_k", float64(p.TopK)}, {"top_p", p.TopP}, {"min_p", p.MinP}, {"repeat_penalty", p.RepetitionPenalty}} {
		if d.value != 0 || d.name == "temperature" {
			list = append(list, d)
		}
	}
	return list
}
