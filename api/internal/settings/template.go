package settings

import (
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/text"
)

// DecodeTemplateArguments reads chat_template_kwargs, which are further variables of the chat
// template, into c. If effort is not "", it is the value of reasoning_effort unless the request
// sets that variable.
func DecodeTemplateArguments(f *wire.Fields, effort string, c *text.Conversation) {
	r := &chat.Request{AddGenerationPrompt: true}
	if DecodeKwargs(f, effort, r); f.Err() == nil {
		SetTemplateArguments(c, r)
	}
}

// DecodeKwargs is DecodeTemplateArguments for a dialect that reads further fields into r. The
// caller calls SetTemplateArguments afterwards.
func DecodeKwargs(f *wire.Fields, effort string, r *chat.Request) {
	kwargs := chat.NewDict()
	f.Like("chat_template_kwargs", map[string]any{})
	if v, ok := Value(f, "chat_template_kwargs"); ok {
		d, ok := Object(f, "chat_template_kwargs", v)
		if !ok {
			return
		}
		kwargs = d
	}
	if _, given := kwargs.Get("reasoning_effort"); effort != "" && !given {
		kwargs = kwargs.Clone()
		kwargs.Set("reasoning_effort", effort)
	}
	if kwargs.Len() == 0 {
		return
	}
	if err := r.SetKwargs(kwargs); err != nil {
		f.Fail("chat_template_kwargs", "Invalid value for 'chat_template_kwargs': %s", generate.AsError(err, "").Message)
	}
}

// SetTemplateArguments copies to c the fields of r that template arguments may set.
func SetTemplateArguments(c *text.Conversation, r *chat.Request) {
	c.AddGenerationPrompt, c.ContinueFinalMessage = r.AddGenerationPrompt, r.ContinueField
	if documents, ok := r.Documents.(*chat.List); ok {
		c.Documents = append([]any{}, documents.Items...)
	}
	if r.Kwargs != nil {
		c.Arguments = map[string]any{}
		for name, v := range r.Kwargs.All() {
			c.Arguments[name] = v
		}
	}
}

// Value reads a field as a value for templates. Objects keep the order of their keys.
func Value(f *wire.Fields, name string) (chat.Value, bool) {
	raw, ok := f.Raw(name)
	if !ok {
		return nil, false
	}
	v, err := chat.Decode(raw)
	if err != nil {
		f.Fail(name, "Invalid value for '%s': %v", name, err)
		return nil, false
	}
	return v, true
}

// Object returns v if it is an object. If not, the error names the path at.
func Object(f *wire.Fields, at string, v chat.Value) (*chat.Dict, bool) {
	o, ok := v.(*chat.Dict)
	if !ok {
		f.Fail(at, "Invalid type for '%s': expected an object.", at)
	}
	return o, ok
}

// DecodeVerbosity reads verbosity, the requested length of an answer. If the request does not set
// it, to is unchanged.
func DecodeVerbosity(f *wire.Fields, to *string) {
	switch f.String("verbosity", to); *to {
	case "", "low", "medium", "high":
	default:
		f.Fail("verbosity", "Invalid value for {}: expected \"low\", \"medium\" or \"high\".")
	}
}

// SetVerbosity sets the variable verbosity of the chat template, unless template arguments set it.
// Templates without that variable render the same prompt.
func SetVerbosity(c *text.Conversation, verbosity string) {
	if _, given := c.Arguments["verbosity"]; given || verbosity == "" {
		return
	}
	if c.Arguments == nil {
		c.Arguments = map[string]any{}
	}
	c.Arguments["verbosity"] = verbosity
}
