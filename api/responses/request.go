package responses

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// request is the body of POST /v1/responses.
type request struct {
	generate.Request
	model        *generate.Model
	conversation generate.Conversation
	response     *response
	items        []*inputItem
	callees      callees
	verbosity    string // requested by the client; "" if it is not set
	stream       bool
	encrypt      bool // reasoning has encrypted_content
}

// maxLogProbs is the maximum number of alternative tokens per token.
const maxLogProbs = 20

// decode decodes a request. It reads earlier responses from the store. Errors are of type
// *wire.Error.
func (s *Server) decode(ctx context.Context, f *wire.Fields, m *generate.Model) (*request, error) {
	q := decodeRequest(f, m)
	if f.Err() != nil {
		return nil, f.Err()
	}
	if err := keep(ctx, f); err != nil {
		return nil, err
	}
	earlier, err := s.history(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := s.converse(ctx, q, earlier); err != nil {
		return nil, err
	}
	q.conversation.Messages, q.conversation.Tools = nil, nil // the prompt contains them
	return q, inputError(m.Constrain(ctx, &q.Request))
}

// keptCopies is the number of copies of a request's input that are in memory until it is answered:
// as items, and in the JSON that is stored.
const keptCopies = 4

// keep reserves memory for the part of the request that its response stores.
func keep(ctx context.Context, f *wire.Fields) error {
	n := 0
	for _, name := range []string{"input", "instructions", "tools", "text", "metadata", "tool_choice"} {
		raw, _ := f.Raw(name)
		n += keptCopies * len(raw)
	}
	return wire.ClaimOf(ctx).Keep(n)
}

// decodeRequest reads the fields of a request. The error is kept in f.
func decodeRequest(f *wire.Fields, m *generate.Model) *request {
	id, now := newID(), time.Now().Unix()
	r := &response{ID: id, Object: "response", Created: now, Status: inProgress, Model: m.Name, Output: []*outputItem{}, Store: true, ServiceTier: "default"}
	q := &request{model: m, response: r}
	foreign.Refuse(f, foreign.Responses)
	q.items = decodeInput(f)
	if previous := ""; f.Has("previous_response_id") {
		f.String("previous_response_id", &previous)
		r.Previous = &previous
	}
	if len(q.items) == 0 && r.Previous == nil && f.Err() == nil {
		f.Fail("input", "Missing required parameter: {}.")
	}
	if f.Has("instructions") {
		r.Instructions = new(string)
		f.String("instructions", r.Instructions)
	}
	decodeSampling(f, m, q)
	q.callees = decodeTools(f, &q.conversation, r)
	decodeText(f, q)
	decodeReasoningConfig(f, q)
	decodeLabels(f, r)
	f.Bool("store", &r.Store)
	if f.Bool("stream", &q.stream); f.Has("stream_options") {
		decodeStreamOptions(f, q.stream)
	}
	r.Truncation = "disabled"
	if f.String("truncation", &r.Truncation); r.Truncation != "disabled" && r.Truncation != "auto" {
		f.Fail("truncation", "Invalid value for {}: expected \"auto\" or \"disabled\".")
	}
	nameItems(q.items, strings.TrimPrefix(id, responsePrefix))
	return q
}

func decodeStreamOptions(f *wire.Fields, stream bool) {
	o, ok := f.Object("stream_options")
	if !ok {
		return
	}
	if !stream {
		f.Fail("stream_options", "{} has a meaning only with 'stream'.")
	}
	obfuscate := false
	o.Bool("include_obfuscation", &obfuscate) // would hide lengths of texts in encrypted traffic; it has no effect here
}

// decodeSampling reads the sampling parameters and what is shown of tokens.
func decodeSampling(f *wire.Fields, m *generate.Model, q *request) {
	settings.DecodeSampling(f, m, &q.Request)
	q.Param, q.Trim = "input", true
	r := q.response
	if f.Has("max_output_tokens") {
		r.MaxOutputTokens = new(int)
		f.Integer("max_output_tokens", r.MaxOutputTokens, 1, 1<<31-1)
		q.MaxTokens = *r.MaxOutputTokens
	}
	f.Integer("top_logprobs", &r.TopLogProbs, 0, maxLogProbs)
	decodeInclude(f, q)
	if q.LogProbs {
		q.TopLogProbs = r.TopLogProbs
	}
	p := &q.Params
	r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty = p.Temperature, p.TopP, p.PresencePenalty, p.FrequencyPenalty
	if r.TopP == 0 {
		r.TopP = 1 // off
	}
}

// hostedIncludes are additional output of tools that this server does not have.
var hostedIncludes = []string{"file_search_call.results", "web_search_call.results", "web_search_call.action.sources", "message.input_image.image_url",
	"computer_call_output.output.image_url", "code_interpreter_call.outputs"}

func decodeInclude(f *wire.Fields, q *request) {
	f.Like("include", []string{})
	raw, ok := f.Raw("include")
	if !ok {
		return
	}
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		f.WrongType("include", "a list of strings")
		return
	}
	for _, name := range names {
		switch {
		case name == "message.output_text.logprobs":
			q.LogProbs = true
		case name == "reasoning.encrypted_content":
			q.encrypt = true
		case slices.Contains(hostedIncludes, name):
		default:
			f.Fail("include", "Invalid value for {}: %q.", short(name))
		}
	}
}

// decodeText reads the format of the text.
func decodeText(f *wire.Fields, q *request) {
	r := q.response
	r.Text = textConfig{Format: json.RawMessage(`{"type":"text"}`), Verbosity: "medium"}
	o, ok := f.Object("text")
	if !ok {
		return
	}
	if settings.DecodeVerbosity(o, &q.verbosity); q.verbosity != "" {
		r.Text.Verbosity = q.verbosity
	}
	in, ok := o.Object("format")
	if !ok {
		return
	}
	raw, _ := o.Raw("format")
	r.Text.Format = slices.Clone(raw)
	var kind string
	switch required(in, "type", &kind); kind {
	case "", "text":
	case "json_object":
		q.Constraint = &generate.Constraint{Field: "text.format", Object: true}
	case "json_schema":
		strict := true // a schema is always enforced
		in.Bool("strict", &strict)
		var name string
		required(in, "name", &name)
		if _, ok := in.Object("schema"); !ok {
			in.Fail("schema", "Missing required parameter: {}.")
			return
		}
		schema, _ := in.Raw("schema")
		q.Constraint = &generate.Constraint{Field: "text.format.schema", Schema: slices.Clone(schema)}
	default:
		in.Fail("type", "Invalid value for {}: %q; use \"text\", \"json_object\" or \"json_schema\".", short(kind))
	}
}

// decodeReasoningConfig reads how the model reasons. The server makes no summaries of reasoning: it
// shows the text.
func decodeReasoningConfig(f *wire.Fields, q *request) {
	r := q.response
	effort := ""
	o, ok := f.Object("reasoning")
	q.ReasoningBudget = settings.DecodeReasoningBudget(f, o, nil)
	if ok {
		r.Reasoning = &reasoningConfig{MaxTokens: q.ReasoningBudget}
		if o.String("effort", &effort); effort != "" {
			r.Reasoning.Effort = &effort
		}
		for _, name := range []string{"generate_summary", "summary"} {
			var summary string
			if o.String(name, &summary); summary != "" {
				r.Reasoning.Summary = &summary
			}
		}
	}
	settings.DecodeTemplateArguments(f, effort, &q.conversation.Conversation)
	settings.SetVerbosity(&q.conversation.Conversation, q.verbosity)
}

// Limits of metadata, the same as OpenAI's.
const (
	maxMetadata    = 16
	maxMetadataKey = 64
	maxMetadataLen = 512
)

// decodeLabels reads fields that the response only repeats.
func decodeLabels(f *wire.Fields, r *response) {
	for name, to := range map[string]**string{"safety_identifier": &r.SafetyIdentifier, "prompt_cache_key": &r.PromptCacheKey, "user": &r.User} {
		var label string
		if f.String(name, &label); f.Has(name) {
			*to = &label
		}
	}
	r.Metadata = map[string]string{}
	f.Texts("metadata", &r.Metadata)
	if len(r.Metadata) > maxMetadata {
		f.Fail("metadata", "Invalid value for {}: %d pairs, at most %d are allowed.", len(r.Metadata), maxMetadata)
	}
	for key, value := range r.Metadata {
		if len(key) > maxMetadataKey || len(value) > maxMetadataLen {
			f.Fail("metadata", "Invalid value for {}: keys have at most %d characters, values %d.", maxMetadataKey, maxMetadataLen)
		}
	}
}
