package chat

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heftai/heft/internal/chat/jinja"
)

// Value is a JSON value whose objects keep the order of their keys: nil, bool, int64 (or *big.Int),
// float64, string, *List, or *Dict.
type Value = jinja.Value

// Dict is a JSON object, List a JSON array.
type (
	Dict = jinja.Dict
	List = jinja.List
)

// Limits bounds the time and memory a template may take; zero fields have defaults.
type Limits = jinja.Limits

// NewDict returns an object of alternating keys and values.
func NewDict(pairs ...Value) *Dict { return jinja.NewDict(pairs...) }

// NewList returns an array.
func NewList(items ...Value) *List { return jinja.NewList(items...) }

// Decode decodes one JSON text to a Value. It keeps the order of keys, distinguishes integers from
// floats, and limits the nesting.
func Decode(data []byte) (Value, error) { return jinja.Decode(data) }

// Kind is the class of an [Error].
type Kind = jinja.Kind

// The kinds of errors. Package jinja has further kinds for errors in templates.
const (
	// KindValidation means that a conversation was rejected before or after rendering.
	KindValidation Kind = "validation"
	// KindRaise means that the template rejected the conversation, with the template's message.
	KindRaise = jinja.KindRaise
	// KindSyntax means that a template does not parse.
	KindSyntax = jinja.KindSyntax
	// KindLimit means that a template takes too much time or memory.
	KindLimit = jinja.KindLimit
)

// Error says why there is no template or no prompt. Line is a line of the template, or 0. Message
// may be shown to a client.
type Error struct {
	Kind    Kind
	Line    int
	Message string
}

// Error returns the message with the package and the line.
func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("chat: template line %d: %s", e.Line, e.Message)
	}
	return "chat: " + e.Message
}

func invalid(format string, args ...any) error {
	return &Error{Kind: KindValidation, Message: fmt.Sprintf(format, args...)}
}

// fromEngine converts an error of package jinja to an [Error].
func fromEngine(err error) error {
	var e *jinja.Error
	if errors.As(err, &e) {
		return &Error{e.Kind, e.Line, e.Message}
	}
	return err
}

// Template is a chat template. It is safe for concurrent use.
type Template struct {
	t      *jinja.Template
	once   sync.Once // guards traits, see Adapt
	traits traits
}

// Parse reads a chat template. The error is an [Error] of [KindSyntax].
func Parse(template string) (*Template, error) {
	t, err := jinja.Parse(template)
	if err != nil {
		return nil, fromEngine(err)
	}
	return &Template{t: t}, nil
}

// Source returns the template's text.
func (t *Template) Source() string { return t.t.Source() }

// Request is one conversation to render. Rendering does not change it.
type Request struct {
	// Messages are objects with a role, oldest first. There must be at least one.
	Messages []Value
	// Tools is an array of tool descriptions. nil is None: defined, but empty.
	Tools Value
	// Documents is an array of objects for retrieval templates, or nil.
	Documents Value
	// AddGenerationPrompt ends the prompt with the header of the model's answer.
	AddGenerationPrompt bool
	// ContinueField names the field of the last message that the model continues,
	// usually "content"; empty for none. It excludes AddGenerationPrompt.
	ContinueField string
	// Kwargs are additional variables of the template. They override SpecialTokens.
	Kwargs *Dict
	// SpecialTokens are bos_token, eos_token and so on. A token that the model does not have must
	// be absent, not empty, because templates test whether it is defined.
	SpecialTokens map[string]string
	// Now is the time of strftime_now, in its own location. Zero means the present in local time.
	Now time.Time
	// Limits bounds the rendering; the zero value means the defaults.
	Limits Limits
}

// SetKwargs sets the arguments of apply_chat_template as a client sends them
// (chat_template_kwargs). add_generation_prompt, continue_final_message (true or the name of a
// field) and documents set the fields of those names; all others become Kwargs. Names that would
// replace the conversation are an error.
func (r *Request) SetKwargs(kwargs *Dict) error {
	rest := &Dict{}
	for name, v := range kwargs.All() {
		switch name {
		case "add_generation_prompt":
			on, ok := v.(bool)
			if !ok && v != nil {
				return invalid("%s must be true or false", name)
			}
			r.AddGenerationPrompt = on
		case "continue_final_message":
			switch v := v.(type) {
			case nil:
				r.ContinueField = ""
			case string:
				r.ContinueField = v
			case bool:
				r.ContinueField = ""
				if v {
					r.ContinueField = "content"
				}
			default:
				return invalid("%s must be true, false or the name of a field", name)
			}
		case "documents":
			r.Documents = v
		case "messages", "conversation", "tools", "chat_template", "tokenize":
			return invalid("%s cannot be given as a template argument", name)
		default:
			rest.Set(name, v)
		}
	}
	r.Kwargs = rest
	return nil
}

// Render renders a conversation as a prompt. The error is an [Error].
func (t *Template) Render(r Request) (string, error) {
	prompt, _, err := t.RenderGenerations(r)
	return prompt, err
}

// RenderGenerations is [Template.Render] that also returns the half-open byte ranges of the prompt
// that the template's generation blocks wrote. They are nil if there are none, or if their
// positions are unknown.
func (t *Template) RenderGenerations(r Request) (string, [][2]int, error) {
	messages, err := r.prepare()
	if err != nil {
		return "", nil, err
	}
	var next *continuation
	if r.ContinueField != "" {
		if next, err = continueLast(messages, r.ContinueField, t.Source()); err != nil {
			return "", nil, err
		}
	}
	now := r.Now
	if now.IsZero() {
		now = time.Now()
	}
	prompt, generations, err := t.t.RenderGenerations(r.variables(messages), now, r.Limits)
	if err != nil {
		return "", nil, fromEngine(err)
	}
	if next != nil {
		prompt, err = next.cut(prompt)
		return prompt, nil, err
	}
	return prompt, generations, nil
}

// variables returns the variables of the template.
func (r *Request) variables(messages []*Dict) *Dict {
	list := &List{}
	for _, m := range messages {
		list.Items = append(list.Items, m)
	}
	vars := NewDict("messages", list, "tools", r.Tools, "documents", r.Documents,
		"add_generation_prompt", r.AddGenerationPrompt)
	for name, token := range r.SpecialTokens {
		if _, kept := vars.Get(name); !kept {
			vars.Set(name, token)
		}
	}
	for name, v := range r.Kwargs.All() {
		vars.Set(name, v)
	}
	return vars
}

// prepare checks the request and returns the messages for the template: copies without null fields,
// with the reasoning under all its names.
func (r *Request) prepare() ([]*Dict, error) {
	if len(r.Messages) == 0 {
		return nil, invalid("Cannot apply chat template to an empty conversation. Provide at least one message.")
	}
	if r.ContinueField != "" && r.AddGenerationPrompt {
		return nil, invalid("continue_final_message and add_generation_prompt are not compatible. " +
			"Use continue_final_message when you want the model to continue the final message, " +
			"and add_generation_prompt when you want to add a header that will prompt it to start a new assistant message instead.")
	}
	if err := objects("tools", r.Tools); err != nil {
		return nil, err
	}
	if err := objects("documents", r.Documents); err != nil {
		return nil, err
	}
	messages := make([]*Dict, len(r.Messages))
	for i, v := range r.Messages {
		m, ok := v.(*Dict)
		if !ok {
			return nil, invalid("messages[%d] must be an object", i)
		}
		messages[i] = aliasReasoning(withoutNulls(m))
	}
	return messages, nil
}

// objects checks that v is null or an array of objects.
func objects(name string, v Value) error {
	if v == nil {
		return nil
	}
	list, ok := v.(*List)
	if !ok {
		return invalid("%s must be an array", name)
	}
	for i, item := range list.Items {
		if _, ok := item.(*Dict); !ok {
			return invalid("%s[%d] must be an object", name, i)
		}
	}
	return nil
}

func withoutNulls(m *Dict) *Dict {
	out := &Dict{}
	for k, v := range m.All() {
		if v != nil {
			out.Set(k, v)
		}
	}
	return out
}

// reasoningFields are the names under which clients send a message's reasoning,
// the standard one first.
var reasoningFields = [...]string{"reasoning_content", "thinking", "reasoning"}

// aliasReasoning sets reasoning_content to the first reasoning of the message, and thinking if it
// is absent. thinking comes first, a new reasoning_content last.
func aliasReasoning(m *Dict) *Dict {
	var reasoning Value
	for _, name := range reasoningFields {
		if v, ok := m.Get(name); ok {
			reasoning = v
			break
		}
	}
	if reasoning == nil {
		return m
	}
	out := NewDict("thinking", reasoning)
	for k, v := range m.All() {
		out.Set(k, v)
	}
	out.Set("reasoning_content", reasoning)
	return out
}
