package responses

import (
	"encoding/json"

	"github.com/heftai/heft/api/generate"
)

// The states of a response. Items have the first three.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
	cancelled  = "cancelled"
)

// response is the resource that requests create and GET returns. All keys are always present.
type response struct {
	ID         string             `json:"id"`
	Object     string             `json:"object"`
	Created    int64              `json:"created_at"`
	Completed  *int64             `json:"completed_at"`
	Status     string             `json:"status"`
	Incomplete *incompleteDetails `json:"incomplete_details"`
	Model      string             `json:"model"`
	Previous   *string            `json:"previous_response_id"`
	// Instructions are always a string in this server.
	Instructions *string         `json:"instructions"`
	Output       []*outputItem   `json:"output"`
	Error        *failure        `json:"error"`
	Tools        []tool          `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	Truncation   string          `json:"truncation"`
	Parallel     bool            `json:"parallel_tool_calls"`
	Text         textConfig      `json:"text"`

	TopP             float64          `json:"top_p"`
	PresencePenalty  float64          `json:"presence_penalty"`
	FrequencyPenalty float64          `json:"frequency_penalty"`
	TopLogProbs      int              `json:"top_logprobs"`
	Temperature      float64          `json:"temperature"`
	Reasoning        *reasoningConfig `json:"reasoning"`
	Usage            *usage           `json:"usage"` // null while it is in progress
	MaxOutputTokens  *int             `json:"max_output_tokens"`
	MaxToolCalls     *int             `json:"max_tool_calls"`

	Store            bool              `json:"store"` // it can be retrieved
	Background       bool              `json:"background"`
	ServiceTier      string            `json:"service_tier"`
	Metadata         map[string]string `json:"metadata"`
	SafetyIdentifier *string           `json:"safety_identifier"`
	PromptCacheKey   *string           `json:"prompt_cache_key"`
	User             *string           `json:"user"`
}

// incompleteDetails says why a response ended early.
type incompleteDetails struct {
	Reason string `json:"reason"`
}

// failure says why a response failed.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// textConfig has a request's options of the text.
type textConfig struct {
	Format    json.RawMessage `json:"format"`
	Verbosity string          `json:"verbosity"`
}

type reasoningConfig struct {
	Effort    *string `json:"effort"`
	Summary   *string `json:"summary"`
	MaxTokens *int    `json:"max_tokens,omitzero"` // OpenRouter's
}

// usage counts tokens.
type usage struct {
	Input   int           `json:"input_tokens"`
	Details inputDetails  `json:"input_tokens_details"`
	Output  int           `json:"output_tokens"`
	Answer  outputDetails `json:"output_tokens_details"`
	Total   int           `json:"total_tokens"`
}

type inputDetails struct {
	Cached     int `json:"cached_tokens"`
	CacheWrite int `json:"cache_write_tokens"` // always 0: writing the cache has no cost
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

func newUsage(u generate.Usage) *usage {
	return &usage{u.Prompt, inputDetails{Cached: u.Cached}, u.Completion, outputDetails{u.Reasoning}, u.Prompt + u.Completion}
}

// The types of items.
const (
	typeMessage   = "message"
	typeReasoning = "reasoning"
	typeCall      = "function_call"
	typeOutput    = "function_call_output"
	typeReference = "item_reference"
)

// The types of parts.
const (
	inputText     = "input_text"
	outputText    = "output_text"
	plainText     = "text"
	refusalText   = "refusal"
	reasoningText = "reasoning_text"
	summaryText   = "summary_text"
)

// An outputItem is a message, a call or reasoning of the model. Stored responses are decoded into
// it, too.
type outputItem struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Status  string `json:"status"`
	Content []part `json:"content"` // of a message or reasoning

	CallID    string  `json:"call_id"` // of a call, like the next three
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Input     string  `json:"input"`             // of a call of a custom tool
	Encrypted *string `json:"encrypted_content"` // of reasoning
}

// MarshalJSON writes the keys of the item's type.
func (i *outputItem) MarshalJSON() ([]byte, error) {
	switch i.Type {
	case typeCall, typeCustomCall:
		arguments, input := &i.Arguments, (*string)(nil)
		if i.Type == typeCustomCall {
			arguments, input = nil, &i.Input
		}
		return encode(struct {
			ID        string  `json:"id"`
			Type      string  `json:"type"`
			Status    string  `json:"status"`
			CallID    string  `json:"call_id"`
			Namespace string  `json:"namespace,omitzero"`
			Name      string  `json:"name"`
			Arguments *string `json:"arguments,omitzero"` // of a function
			Input     *string `json:"input,omitzero"`     // of a custom tool
		}{i.ID, i.Type, i.Status, i.CallID, i.Namespace, i.Name, arguments, input})
	case typeReasoning:
		return encode(struct {
			ID        string   `json:"id"`
			Type      string   `json:"type"`
			Status    string   `json:"status"`
			Summary   []string `json:"summary"` // always empty
			Content   []part   `json:"content"`
			Encrypted *string  `json:"encrypted_content"`
		}{i.ID, i.Type, i.Status, []string{}, i.parts(), i.Encrypted})
	}
	return encode(struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Status  string `json:"status"`
		Role    string `json:"role"`
		Content []part `json:"content"`
	}{i.ID, i.Type, i.Status, "assistant", i.parts()})
}

// Samples implements schema.Sampler.
func (i *outputItem) Samples() []any {
	parts := []part{{Type: outputText}}
	return []any{&outputItem{Type: typeMessage, Content: parts}, &outputItem{Type: typeCall}, &outputItem{Type: typeCustomCall},
		&outputItem{Type: typeReasoning}}
}

// called reports whether the item is a call of a function or of a custom tool.
func (i *outputItem) called() bool { return i.Type == typeCall || i.Type == typeCustomCall }

// setInput sets a call's arguments or the text for a custom tool.
func (i *outputItem) setInput(text string) {
	if i.Type == typeCustomCall {
		i.Input = text
		return
	}
	i.Arguments = text
}

// parts returns the item's parts. The result is never nil.
func (i *outputItem) parts() []part {
	if i.Content == nil {
		return []part{}
	}
	return i.Content
}

// A part is a piece of an item's content.
type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
	// LogProbs are those of an output_text, one for each token. They are empty unless the request
	// includes them.
	LogProbs []json.RawMessage `json:"logprobs"`
}

// MarshalJSON writes the keys of the part's type.
func (p part) MarshalJSON() ([]byte, error) {
	if p.Type != outputText {
		return encode(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{p.Type, p.Text})
	}
	return encode(struct {
		Type        string            `json:"type"`
		Text        string            `json:"text"`
		Annotations []string          `json:"annotations"` // always empty
		LogProbs    []json.RawMessage `json:"logprobs"`
	}{p.Type, p.Text, []string{}, list(p.LogProbs)})
}

// Samples implements schema.Sampler.
func (p part) Samples() []any { return []any{part{Type: outputText}, part{Type: reasoningText}} }

// list returns l, or an empty list if l is nil.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// orNull returns a pointer to s, or nil if s is "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
