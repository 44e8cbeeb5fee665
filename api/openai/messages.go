package openai

import (
	"encoding/json"
	"fmt"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/chat"
)

// decodeConversation reads the messages and all that the template is given with them. It
// returns nil after an error.
func decodeConversation(f *fields) *chat.Request {
	r := &chat.Request{AddGenerationPrompt: true}
	decodeMessages(f, r)
	decodeTools(f, r)
	decodeKwargs(f, r)
	if documents, ok := f.value("documents"); ok {
		if _, list := documents.(*chat.List); !list {
			f.fail("documents", "Invalid type for 'documents': expected a list.")
		}
		r.Documents = documents
	}
	decodeContinuation(f, r)
	if r.ContinueField != "" && r.AddGenerationPrompt {
		if _, given := f.get("add_generation_prompt"); given {
			f.fail("add_generation_prompt", "'add_generation_prompt' and 'continue_final_message' exclude each other.")
		}
		r.AddGenerationPrompt = false
	}
	if f.err != nil {
		return nil
	}
	return r
}

// value reads a field as a template sees it: objects keep the order of their keys.
func (f *fields) value(name string) (chat.Value, bool) {
	raw, ok := f.get(name)
	if !ok {
		return nil, false
	}
	v, err := chat.Decode(raw)
	if err != nil {
		f.fail(name, "Invalid value for '%s': %v", name, err)
		return nil, false
	}
	return v, true
}

func decodeMessages(f *fields, r *chat.Request) {
	raw, ok := f.get("messages")
	if !ok {
		f.fail("messages", "Missing required parameter: 'messages'.")
		return
	}
	v, ok := f.value("messages")
	if !ok {
		return
	}
	list, ok := v.(*chat.List)
	if !ok {
		f.wrongType("messages", "a list of messages", raw)
		return
	}
	if len(list.Items) == 0 {
		f.fail("messages", "Invalid value for 'messages': there must be at least one message.")
		return
	}
	for i, m := range list.Items {
		checkMessage(f, fmt.Sprintf("messages[%d]", i), m)
	}
	r.Messages = list.Items
}

func checkMessage(f *fields, at string, v chat.Value) {
	m, ok := object(f, at, v)
	if !ok {
		return
	}
	role, ok := m.Get("role")
	name, text := role.(string)
	if !ok {
		f.fail(at+".role", "Missing required parameter: '%s.role'.", at)
		return
	}
	if !text {
		f.fail(at+".role", "Invalid type for '%s.role': expected a string.", at)
		return
	}
	content, _ := m.Get("content")
	switch c := content.(type) {
	case nil, string:
	case *chat.List:
		checkParts(f, at+".content", c)
	default:
		if name != "tool" { // whose result may be any object
			f.fail(at+".content", "Invalid type for '%s.content': expected a string or a list of parts.", at)
		}
	}
	checkCalls(f, at, m)
	optionalText(f, at, m, "tool_call_id")
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		optionalText(f, at, m, name)
	}
}

func checkParts(f *fields, at string, parts *chat.List) {
	for i, v := range parts.Items {
		at := fmt.Sprintf("%s[%d]", at, i)
		p, ok := object(f, at, v)
		if !ok {
			return
		}
		kind, _ := p.Get("type")
		if kind != "text" {
			f.fail(at+".type", "Invalid value for '%s.type': this model takes parts of type 'text' only.", at)
			return
		}
		if text, _ := p.Get("text"); !isString(text) {
			f.fail(at+".text", "Missing or invalid '%s.text': expected a string.", at)
			return
		}
	}
}

func isString(v chat.Value) bool { _, ok := v.(string); return ok }

// decodeContinuation reads whether the answer is a message of its own.
func decodeContinuation(f *fields, r *chat.Request) {
	f.boolean("add_generation_prompt", &r.AddGenerationPrompt)
	raw, ok := f.get("continue_final_message")
	if !ok {
		return
	}
	var on bool
	switch {
	case json.Unmarshal(raw, &on) == nil:
		if on {
			r.ContinueField = "content"
		}
	case json.Unmarshal(raw, &r.ContinueField) != nil:
		f.wrongType("continue_final_message", "a boolean or the name of a field", raw)
	}
}

// decodeKwargs reads more variables for the template.
func decodeKwargs(f *fields, r *chat.Request) {
	kwargs := chat.NewDict()
	if v, ok := f.value("chat_template_kwargs"); ok {
		d, ok := object(f, "chat_template_kwargs", v)
		if !ok {
			return
		}
		kwargs = d
	}
	var effort string
	f.text("reasoning_effort", &effort)
	if _, given := kwargs.Get("reasoning_effort"); effort != "" && !given {
		kwargs = kwargs.Clone()
		kwargs.Set("reasoning_effort", effort)
	}
	if kwargs.Len() == 0 {
		return
	}
	if err := r.SetKwargs(kwargs); err != nil {
		f.fail("chat_template_kwargs", "Invalid value for 'chat_template_kwargs': %s", generate.AsError(err, "").Message)
	}
}
