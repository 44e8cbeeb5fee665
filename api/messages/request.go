package messages

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// request is the body of POST /v1/messages.
type request struct {
	generate.Request
	model        *generate.Model
	conversation generate.Conversation
	stream       bool
	cached       bool // usage counts cached tokens separately, because the request has a cache_control
	hidden       bool // thinking is not shown
}

// renderCopies is the number of copies of a conversation's text that are in memory while it is
// rendered and encoded.
const renderCopies = 4

// decode decodes a request. If answered is false, max_tokens may be missing. Errors are of type
// *wire.Error.
func decode(ctx context.Context, f *wire.Fields, m *generate.Model, answered bool) (*request, error) {
	q := &request{model: m}
	foreign.Refuse(f, foreign.Messages)
	refuseThread(f)
	q.decodeSampling(f, answered)
	f.Bool("stream", &q.stream)
	q.decodeOutput(f)
	q.decodeThinking(f, answered)
	decodeTools(f, q)
	decodeConversation(f, q)
	if f.Err() != nil {
		return nil, f.Err()
	}
	if err := inputError(m.Converse(ctx, q.conversation, &q.Request)); err != nil {
		return nil, err
	}
	q.conversation.Messages, q.conversation.Tools = nil, nil // the prompt contains them
	return q, inputError(m.Constrain(ctx, &q.Request))
}

// decodeSampling reads the sampling parameters and the stop conditions.
func (q *request) decodeSampling(f *wire.Fields, answered bool) {
	settings.DecodeSampling(f, q.model, &q.Request)
	q.Param, q.Trim = "messages", true
	if answered && (!f.Has("max_tokens") || f.Describes()) {
		f.Fail("max_tokens", "Missing required parameter: {}.")
	}
	f.Integer("max_tokens", &q.MaxTokens, 1, 1<<31-1)
	f.Like("stop_sequences", []string{})
	raw, ok := f.Raw("stop_sequences")
	if !ok {
		return
	}
	var list []string
	switch {
	case json.Unmarshal(raw, &list) != nil:
		f.WrongType("stop_sequences", "a list of strings")
	case len(list)+len(q.Stop) > settings.MaxStops:
		f.Fail("stop_sequences", "Invalid value for {}: %d strings, at most %d are allowed.", len(list)+len(q.Stop), settings.MaxStops)
	case slices.ContainsFunc(list, func(s string) bool { return strings.TrimSpace(s) == "" }):
		f.Fail("stop_sequences", "Invalid value for {}: each stop sequence must have characters that are not white space.")
	}
	q.Stop = append(q.Stop, list...)
}

// decodeOutput reads the format of the answer and the effort.
func (q *request) decodeOutput(f *wire.Fields) {
	effort := ""
	if o, ok := f.Object("output_config"); ok {
		if o.String("effort", &effort); effort == "max" || effort == "xhigh" {
			effort = "high" // templates have no higher value
		}
		q.decodeFormat(o, "format")
	}
	if q.Constraint == nil {
		q.decodeFormat(f, "output_format")
	}
	settings.DecodeTemplateArguments(f, effort, &q.conversation.Conversation)
}

// decodeFormat reads the schema of the answer's text.
func (q *request) decodeFormat(in *wire.Fields, name string) {
	o, ok := in.Object(name)
	if !ok {
		return
	}
	var kind string
	if required(o, "type", &kind); kind != "json_schema" {
		o.Fail("type", "Invalid value for {}: %q; use \"json_schema\".", short(kind))
		return
	}
	if _, ok := o.Object("schema"); !ok {
		o.Fail("schema", "Missing required parameter: {}.")
		return
	}
	schema, _ := o.Raw("schema")
	q.Constraint = &generate.Constraint{Field: o.Path("schema"), Schema: slices.Clone(schema)}
}

// decodeThinking reads whether the model reasons, and the budget of tokens. Templates of hybrid
// models get the former as a variable.
func (q *request) decodeThinking(f *wire.Fields, answered bool) {
	o, ok := f.Object("thinking")
	if !ok {
		return
	}
	var kind, display string
	required(o, "type", &kind)
	if o.String("display", &display); display != "" && display != "summarized" && display != "omitted" {
		o.Fail("display", "Invalid value for {}: %q; expected \"summarized\" or \"omitted\".", short(display))
	}
	q.hidden = display == "omitted"
	budget := 0
	switch o.Integer("budget_tokens", &budget, 1, 1<<31-1); kind {
	case "enabled":
		if budget == 0 {
			o.Fail("budget_tokens", "Missing required parameter: {}.")
		}
		if answered && budget >= q.MaxTokens && f.Err() == nil {
			f.Fail("max_tokens", "Invalid value for {}: it must be greater than 'thinking.budget_tokens', which is %d.", budget)
		}
		q.ReasoningBudget = &budget
	case "adaptive", "disabled":
	default:
		o.Fail("type", "Invalid value for {}: %q; expected \"enabled\", \"adaptive\" or \"disabled\".", short(kind))
	}
	if f.Err() != nil {
		return
	}
	c := &q.conversation
	if c.Arguments == nil {
		c.Arguments = map[string]any{}
	}
	for _, name := range settings.ThinkingVariables {
		if _, given := c.Arguments[name]; !given {
			c.Arguments[name] = kind != "disabled"
		}
	}
}

// short returns the start of a client's text, for errors.
func short(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func required(in *wire.Fields, name string, to *string) {
	if in.String(name, to); *to == "" {
		in.Fail(name, "Missing required parameter: {}.")
	}
}
