package generate

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/text"
)

// Request is a prompt and how it is to be continued. The zero value of each field but
// Prompt is a valid choice.
type Request struct {
	Prompt []int32
	// Param is what the client calls the prompt, for errors: "prompt" or "messages".
	// "" is "prompt".
	Param string
	// Params says how tokens are chosen; Params.Stop are the client's own stop ids, to
	// which the model's are added unless IgnoreEOS.
	Params    Params
	IgnoreEOS bool
	// MaxTokens bounds the answer; negative: what the context holds. It is an error to
	// ask for more than that, unless Trim.
	MaxTokens int
	Trim      bool
	// Truncate is how many tokens of a conversation's prompt [Model.Converse] keeps, the last ones; 0 keeps all.
	Truncate int
	N        int // choices; 0 means 1
	Seed     uint64
	// Salt separates cached prefixes: the request shares them only with requests of the same salt.
	Salt string

	// Stop are strings before which the text ends, or with IncludeStop behind which.
	Stop        []string
	IncludeStop bool // also shows the text of an id that ended the answer
	ShowSpecial bool // special tokens are part of the text
	// Continues says that the text continues the prompt's text: a space between the
	// two belongs to it. Without it, the text is a new one.
	Continues bool
	// Parse, if set, parts the answer into reasoning, content and calls of tools, as the
	// model's family writes them. Stop strings are then looked for in the content alone.
	Parse *text.ParseOptions
	// ReasoningBudget, if set, is how many tokens of reasoning there may be: behind them the marker that
	// ends reasoning is forced. Without Parse the prompt's text tells whether the answer begins in reasoning, and a
	// Constraint leaves none.
	ReasoningBudget *int
	// Constraint, if set, says what the content must be; see [Model.Constrain].
	Constraint *Constraint
	calls      *calls // that the answer must or may have; nil: any
	compiled   *constraint
	custom     map[string]customTool // of the conversation

	// Prediction is what the answer is expected to be, about; see [Model.EncodePrediction]. Where the answer follows it, it is
	// generated faster. The answer does not depend on it.
	Prediction []int32

	LogProbs       bool // of generated tokens
	PromptLogProbs bool // of the prompt's
	TopLogProbs    int  // most likely ids reported with each generated token
	TopPrompt      int  // most likely ids reported with each token of the prompt
}

// EOS returns the ids that end the model's texts: those of generation_config.json, else those
// of config.json and the tokenizer's own.
func (m *Model) EOS() []int32 {
	var ids []int32
	seen := map[int]bool{}
	add := func(id int) {
		if id >= 0 && id <= math.MaxInt32 && !seen[id] {
			seen[id] = true
			ids = append(ids, int32(id))
		}
	}
	if m.Generation != nil && len(m.Generation.EOS) > 0 {
		for _, id := range m.Generation.EOS {
			add(id)
		}
		return ids
	}
	if m.Config != nil {
		for _, id := range m.Config.EOS {
			add(id)
		}
	}
	if m.Tokenizer != nil && m.Chat != nil {
		if id, ok := m.Tokenizer.ID(m.Chat.SpecialToken("eos_token")); ok {
			add(int(id))
		}
	}
	return ids
}

// Defaults returns how tokens are chosen if a request does not say: with OpenAI's defaults, replaced by
// those fields of generation_config.json that vLLM takes. maxTokens is negative if only the context
// limits an answer.
func (m *Model) Defaults() (params Params, maxTokens int) {
	params, maxTokens = Params{Temperature: sample.Default().Temperature}, -1
	g := m.Generation
	if g == nil {
		return params, maxTokens
	}
	set := func(to *float64, from *float64) {
		if from != nil {
			*to = *from
		}
	}
	set(&params.Temperature, g.Temperature)
	set(&params.TopP, g.TopP)
	set(&params.MinP, g.MinP)
	set(&params.RepetitionPenalty, g.RepetitionPenalty)
	if g.TopK != nil {
		params.TopK = *g.TopK
	}
	if g.MaxNewTokens != nil && *g.MaxNewTokens > 0 {
		maxTokens = *g.MaxNewTokens
	}
	return params, maxTokens
}

// Limit returns the most tokens that a prompt and its answer may have together.
func (m *Model) Limit() int {
	if m.engine == nil { // see Models.Read
		return 0
	}
	return m.engine.Limit()
}

// promptBytes is what a token of a prompt that is read as text takes, with its id.
const promptBytes = 12

// Start submits a request. It ends when ctx does; the caller closes the Generation. Errors are of
// type [*wire.Error].
func (m *Model) Start(ctx context.Context, r Request) (*Generation, error) {
	if !r.Trim && r.MaxTokens > 0 && len(r.Prompt)+r.MaxTokens > m.Limit() {
		return nil, tooLong(r.Param, len(r.Prompt), r.MaxTokens, m.Limit())
	}
	if r.MaxTokens >= 0 && r.Params.MinTokens > r.MaxTokens {
		return nil, wire.Invalidf("min_tokens", "Invalid value for 'min_tokens': %d is more than the %d that the answer may have.", r.Params.MinTokens, r.MaxTokens)
	}
	switch {
	case len(r.Stop) > 0 && m.Tokenizer == nil:
		return nil, wire.Invalidf("stop", "The model %s has no tokenizer: use stop_token_ids in place of strings.", m.Name)
	case slices.Contains(r.Stop, ""):
		return nil, wire.Invalidf("stop", "Invalid value for 'stop': a stop string cannot be empty.")
	}
	r.Param = cmp.Or(r.Param, "prompt")
	r.N = cmp.Or(r.N, 1)
	if !r.IgnoreEOS {
		r.Params.Stop = slices.Concat(r.Params.Stop, m.EOS())
	}
	if r.compiled == nil {
		if err := m.Constrain(ctx, &r); err != nil {
			return nil, err
		}
	}
	if r.ReasoningBudget != nil && r.Parse == nil { // whose prompt is read as text
		if err := wire.ClaimOf(ctx).Work(promptBytes * len(r.Prompt)); err != nil {
			return nil, err
		}
	}
	client := wire.ClientOf(ctx)
	stream, err := m.engine.Submit(ctx, engine.Request{
		Client: client.ID, Background: wire.InBackground(ctx),
		Constrain: m.constraints(&r),
		Adapter:   m.Adapter, Adapted: m.adapted, Salt: r.Salt, Prompt: r.Prompt, Params: r.Params.internal(), MaxTokens: r.MaxTokens, N: r.N, Seed: r.Seed, Prediction: r.Prediction,
		LogProbs: r.LogProbs, PromptLogProbs: r.PromptLogProbs, TopLogProbs: r.TopLogProbs, TopPrompt: r.TopPrompt,
	})
	if err != nil {
		return nil, AsError(err, r.Param)
	}
	client.Spent(len(r.Prompt), 0)
	g := newGeneration(m, r, stream)
	g.client = client
	return g, nil
}
