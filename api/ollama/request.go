package ollama

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// request is the body of POST /api/chat or /api/generate.
type request struct {
	generate.Request
	model        *generate.Model
	conversation generate.Conversation
	chat         bool // /api/chat, otherwise /api/generate
	stream       bool
	empty        bool // no prompt: the request only loads the model or, with unload, unloads it
	unload       bool // keep_alive is 0
	hidden       bool // thinking is not shown
	keepIDs      bool // the last object has the ids of prompt and answer
	context      int  // num_ctx; 0: not set
	times        times
}

// times are the points in time from which an answer's durations are computed.
type times struct{ begin, started, first time.Time }

// renderCopies is the number of copies of a conversation's text that are in memory while it is
// rendered and encoded.
const renderCopies = 4

// maxLogProbs is the maximum number of alternative tokens per token.
const maxLogProbs = 20

// unsupported change Ollama's answer, and this server does not implement them.
var unsupported = []wire.Unsupported{
	{Field: "images", Reason: "this model reads text only."},
	{Field: "suffix", Reason: "text is not inserted; put both parts into the prompt."},
	{Field: "template", Reason: "the model's own chat template is used; use \"raw\" for a prompt of your own."},
}

// decode reads the fields that both endpoints have.
func decode(f *wire.Fields, m *generate.Model, chat bool) *request {
	q := &request{model: m, chat: chat, stream: true}
	q.Param = "prompt"
	f.Refuse(unsupported)
	q.decodeOptions(f)
	f.Bool("stream", &q.stream)
	q.decodeFormat(f)
	q.decodeThink(f)
	f.Like("keep_alive", "", 0)
	q.unload = keepsNothing(f)
	f.Bool("logprobs", &q.LogProbs)
	if f.Integer("top_logprobs", &q.TopLogProbs, 0, maxLogProbs); q.TopLogProbs > 0 && !q.LogProbs {
		f.Fail("top_logprobs", "{} has a meaning only with 'logprobs': true.")
	}
	for _, name := range []string{"truncate", "shift"} { // a text that exceeds the context is an error here
		on := false
		f.Bool(name, &on)
	}
	return q
}

// decodeFormat reads "json", or a schema for the answer.
func (q *request) decodeFormat(f *wire.Fields) {
	f.Like("format", new(string), map[string]any{})
	raw, ok := f.Raw("format")
	if !ok {
		return
	}
	var name string
	switch err := json.Unmarshal(raw, &name); {
	case err == nil && name == "":
	case err == nil && name == "json":
		q.Constraint = &generate.Constraint{Field: "format", Object: true}
	case err == nil:
		f.Fail("format", "Invalid value for {}: %q; use \"json\" or a JSON schema.", short(name))
	case wire.TypeName(raw) != "an object":
		f.WrongType("format", "\"json\" or a JSON schema")
	default:
		q.Constraint = &generate.Constraint{Field: "format", Schema: slices.Clone(raw)}
	}
}

// decodeThink reads whether the model reasons, or the effort.
func (q *request) decodeThink(f *wire.Fields) {
	f.Like("think", new(bool), "")
	raw, ok := f.Raw("think")
	if !ok {
		return
	}
	var on bool
	var effort string
	if json.Unmarshal(raw, &on) != nil {
		if json.Unmarshal(raw, &effort) != nil {
			f.WrongType("think", "a boolean, \"low\", \"medium\" or \"high\"")
			return
		}
		if !slices.Contains([]string{"low", "medium", "high", "max"}, effort) {
			f.Fail("think", "Invalid value for {}: %q; expected a boolean, \"low\", \"medium\" or \"high\".", short(effort))
		}
		on = true
	}
	if on && !f.Describes() && !thinks(q.model) {
		f.FailWith(wire.Invalidf("", "%q does not support thinking", q.model.Name)) // Ollama's message
	}
	q.hidden = !on
	arguments := map[string]any{}
	for _, name := range settings.ThinkingVariables {
		arguments[name] = on
	}
	if effort == "max" {
		effort = "high" // templates have no higher value
	}
	if effort != "" {
		arguments["reasoning_effort"] = effort
	}
	q.conversation.Arguments = arguments
}

// keepsNothing reports whether keep_alive is 0, as a duration or as a number of seconds. It is the
// time that the model stays loaded after the request. Other values have no effect.
func keepsNothing(f *wire.Fields) bool {
	raw, ok := f.Raw("keep_alive")
	if !ok {
		return false
	}
	var seconds float64
	if json.Unmarshal(raw, &seconds) == nil {
		return seconds == 0
	}
	var written string
	if json.Unmarshal(raw, &written) != nil {
		return false
	}
	d, err := time.ParseDuration(written)
	return err == nil && d == 0
}

// asksToUnload reports whether a request has no prompt and keep_alive 0, as ollama stop sends it.
func asksToUnload(f *wire.Fields, chat bool) bool {
	if f.Describes() || !keepsNothing(f) {
		return false
	}
	if chat {
		empty := true
		f.Each("messages", wantMessages, func(int, json.RawMessage) bool { empty = false; return false })
		return empty
	}
	var prompt, system string
	f.String("prompt", &prompt)
	f.String("system", &system)
	return prompt == "" && system == "" && f.Count("context") == 0
}

// decodeChat decodes the body of POST /api/chat. Errors are of type *wire.Error.
func decodeChat(ctx context.Context, f *wire.Fields, m *generate.Model) (*request, error) {
	q := decode(f, m, true)
	q.Param = "messages"
	decodeTools(f, &q.conversation)
	decodeMessages(f, q)
	if f.Err() != nil || q.empty {
		return q, f.Err()
	}
	return q, q.converse(ctx)
}

// converse renders the conversation as the prompt.
func (q *request) converse(ctx context.Context) error {
	c := &q.conversation
	c.AddGenerationPrompt = c.ContinueFinalMessage == ""
	if err := q.model.Converse(ctx, *c, &q.Request); err != nil {
		return err
	}
	c.Messages, c.Tools = nil, nil // the prompt contains them
	return q.finish(ctx)
}

// finish checks the lengths and compiles the format.
func (q *request) finish(ctx context.Context) error {
	if err := q.fit(); err != nil {
		return err
	}
	return q.model.Constrain(ctx, &q.Request)
}

// decodeGenerate decodes the body of POST /api/generate. Errors are of type *wire.Error.
func decodeGenerate(ctx context.Context, f *wire.Fields, m *generate.Model) (*request, error) {
	q := decode(f, m, false)
	var prompt, system string
	var before []int32
	raw := false
	f.String("prompt", &prompt)
	f.String("system", &system)
	f.Bool("raw", &raw)
	f.FailWith(m.CheckIDs(f, "context"))
	f.IDs("context", &before, m.Vocab())
	f.Work(renderCopies * (len(prompt) + len(system)))
	if q.empty = prompt == "" && system == "" && len(before) == 0; f.Err() != nil || q.empty {
		return q, f.Err()
	}
	if err := generate.KeepIDs(ctx, [][]int32{before}); err != nil {
		return q, err
	}
	q.keepIDs = !raw
	if raw || m.NoChat() != nil {
		return q, q.continued(ctx, prompt, system, raw, before)
	}
	c := &q.conversation
	if system != "" {
		c.Messages = append(c.Messages, text.System(system))
	}
	c.Messages = append(c.Messages, text.User(prompt))
	if err := q.converse(ctx); err != nil {
		return q, err
	}
	q.Prompt = append(before[:len(before):len(before)], q.Prompt...)
	return q, q.fit()
}

// continued makes a prompt from a raw text, which the model continues.
func (q *request) continued(ctx context.Context, prompt, system string, raw bool, before []int32) error {
	if system != "" {
		why := "the prompt is raw"
		if !raw {
			why = "the model has no chat template"
		}
		return wire.Invalidf("system", "'system' is not supported, as %s: put its text into the prompt.", why)
	}
	ids, err := q.model.EncodePrompt(ctx, prompt, len(before) == 0)
	if err != nil {
		return generate.AsError(err, "prompt")
	}
	q.Prompt, q.Continues = append(before[:len(before):len(before)], ids...), true
	return q.finish(ctx)
}

func tooLong(prompt, limit int) string {
	return fmt.Sprintf("The prompt has %d tokens, and num_ctx is %d: raise it, or leave it out.", prompt, limit)
}

// short returns the start of a client's text, for errors.
func short(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
