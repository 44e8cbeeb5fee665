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

// A Request is a prompt with the options of its continuation. The zero value of each field except
// Prompt is valid.
type Request struct {
	Prompt []int32
	// Param is the client's name of the prompt, for errors: "prompt" or "messages". "" means
	// "prompt".
	Param string
	// Params say how tokens are chosen. Params.Stop has the client's own stop ids; the model's are
	// added unless IgnoreEOS is set.
	Params    Params
	IgnoreEOS bool
	// MaxTokens is the maximum number of tokens of the answer. A negative value means as many as
	// fit into the context. A larger value than fits is an error, unless Trim is set.
	MaxTokens int
	Trim      bool
	// Truncate is the number of tokens that [Model.Converse] keeps of a conversation's prompt,
	// counted from its end; 0 keeps all.
	Truncate int
	N        int // number of choices; 0 means 1
	Seed     uint64
	// Salt separates cached prefixes. The request shares them only with requests of the same salt.
	Salt string

	// Stop has strings that end the text. The text ends before the string, or after it with
	// IncludeStop.
	Stop        []string
	IncludeStop bool // also shows the text of an id that ended the answer
	ShowSpecial bool // special tokens are part of the text
	// Continues says that the text continues the prompt's text, so that a space between the two
	// belongs to it. Otherwise the text starts anew.
	Continues bool
	// Parse, if set, splits the answer into reasoning, content and tool calls, in the notation of
	// the model's family. Stop strings then apply to the content only.
	Parse *text.ParseOptions
	// ReasoningBudget, if set, is the maximum number of tokens of reasoning. After them the marker
	// that ends reasoning is forced. Without Parse the prompt's text says whether the answer starts
	// in reasoning; with a Constraint there is no reasoning then.
	ReasoningBudget *int
	// Constraint, if set, restricts the content; see [Model.Constrain].
	Constraint *Constraint
	calls      *calls // calls that the answer must or may have; nil: any
	compiled   *constraint
	custom     map[string]customTool // of the conversation

	// Prediction is the expected answer, approximately; see [Model.EncodePrediction]. Where the
	// answer follows it, generation is faster. The answer does not depend on it.
	Prediction []int32

	LogProbs       bool // return those of generated tokens
	PromptLogProbs bool // return those of the prompt's tokens
	TopLogProbs    int  // number of most likely ids reported with each generated token
	TopPrompt      int  // number of most likely ids reported with each token of the prompt
}

// EOS returns the ids that end the model's texts. They come from generation_config.json or, if it
// has none, from config.json and the tokenizer.
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

// Defaults returns the parameters of requests that do not set them. They are OpenAI's defaults,
// replaced by the fields of generation_config.json that vLLM also uses. maxTokens is negative if
// only the context limits an answer.
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

// Limit returns the maximum number of tokens of a prompt and its answer together.
func (m *Model) Limit() int {
	if m.engine == nil { // see Models.Read
		return 0
	}
	return m.engine.Limit()
}

// promptBytes is the memory of a token of a prompt that is decoded to text, with its id.
const promptBytes = 12

// Start submits a request. The request ends when ctx does. The caller must close the Generation.
// Errors are of type [*wire.Error].
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
	if r.ReasoningBudget != nil && r.Parse == nil { // the prompt is decoded to text
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
