package openai

import (
	"encoding/json"
	"fmt"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/text"
)

// decodeConversation decodes the messages and everything else that the template gets. It returns
// nil after an error.
func decodeConversation(f *wire.Fields, m *generate.Model) *generate.Conversation {
	c := &generate.Conversation{}
	r := &chat.Request{AddGenerationPrompt: true} // may be changed by template arguments
	decodeMessages(f, m, c)
	decodeTools(f, c)
	var effort, verbosity string
	f.String("reasoning_effort", &effort)
	settings.DecodeVerbosity(f, &verbosity)
	settings.DecodeKwargs(f, effort, r)
	f.Like("documents", []any{})
	if documents, ok := settings.Value(f, "documents"); ok {
		if _, list := documents.(*chat.List); !list {
			f.Fail("documents", "Invalid type for 'documents': expected a list.")
		}
		r.Documents = documents
	}
	decodeContinuation(f, r)
	if r.ContinueField != "" && r.AddGenerationPrompt {
		if _, given := f.Raw("add_generation_prompt"); given {
			f.Fail("add_generation_prompt", "'add_generation_prompt' and 'continue_final_message' exclude each other.")
		}
		r.AddGenerationPrompt = false
	}
	f.Bool("add_special_tokens", &c.AddSpecial)
	if f.Err() != nil {
		return nil
	}
	settings.SetTemplateArguments(&c.Conversation, r)
	settings.SetVerbosity(&c.Conversation, verbosity)
	return c
}

// decodeMessages decodes the messages up to the first error. It stops if their text cannot fit into
// the context of m.
func decodeMessages(f *wire.Fields, m *generate.Model, c *generate.Conversation) {
	f.Like("messages", []map[string]any{})
	if !f.Has("messages") || f.Describes() {
		f.Fail("messages", "Missing required parameter: 'messages'.")
		return
	}
	bytes := 0
	fit := m.NewLengthCheck("messages")
	var last *chat.Dict
	f.Each("messages", "a list of messages", func(i int, raw json.RawMessage) bool {
		v, err := chat.Decode(raw)
		if err != nil {
			f.Fail("messages", "Invalid value for 'messages': %v", err)
			return false
		}
		checkMessage(f, fmt.Sprintf("messages[%d]", i), v)
		if f.Err() != nil {
			return false
		}
		last = v.(*chat.Dict)
		eachText(last, func(text string) {
			bytes += len(text)
			if !f.Has("truncate_prompt_tokens") {
				f.FailWith(fit.Add(text))
			}
		})
		message, err := text.MessageOf(v)
		if err != nil {
			f.Fail("messages", "Invalid value for 'messages': %v", err)
		}
		c.Messages = append(c.Messages, message)
		return true
	})
	if f.Err() == nil && len(c.Messages) == 0 {
		f.Fail("messages", "Invalid value for 'messages': there must be at least one message.")
	}
	if f.Err() != nil {
		return
	}
	checkPrefill(f, len(c.Messages)-1, last)
	f.Work(renderCopies * bytes)
}

// renderCopies is the number of copies of a conversation's text that are in memory while it is
// rendered and encoded.
const renderCopies = 4

// eachText calls found with the texts of a message that was already checked.
func eachText(message *chat.Dict, found func(string)) {
	content, _ := message.Get("content")
	switch c := content.(type) {
	case string:
		found(c)
	case *chat.List:
		for _, part := range c.Items {
			if d, ok := part.(*chat.Dict); ok {
				if text, _ := d.Get("text"); isString(text) {
					found(text.(string))
				}
			}
		}
	}
}

func checkMessage(f *wire.Fields, at string, v chat.Value) {
	m, ok := settings.Object(f, at, v)
	if !ok {
		return
	}
	role, ok := m.Get("role")
	name, isText := role.(string)
	if !ok {
		f.Fail(at+".role", "Missing required parameter: '%s.role'.", at)
		return
	}
	if !isText {
		f.Fail(at+".role", "Invalid type for '%s.role': expected a string.", at)
		return
	}
	if name == "assistant" {
		tellRefusal(m)
	}
	content, _ := m.Get("content")
	switch c := content.(type) {
	case string:
	case nil:
		if name == "user" || name == "system" || name == "developer" {
			f.Fail(at+".content", "Missing required parameter: '%s.content'.", at)
		}
	case *chat.List:
		checkParts(f, at+".content", c)
	default:
		if name != "tool" { // a tool's result may be any object
			f.Fail(at+".content", "Invalid type for '%s.content': expected a string or a list of parts.", at)
		}
	}
	checkCalls(f, at, m)
	optionalText(f, at, m, "tool_call_id")
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		optionalText(f, at, m, name)
	}
}

// tellRefusal makes the refusal of an assistant's message the message's text, because no template
// reads refusal.
func tellRefusal(message *chat.Dict) {
	content, _ := message.Get("content")
	if refusal, _ := message.Get("refusal"); content == nil && isString(refusal) {
		message.Set("content", refusal)
	}
	parts, ok := content.(*chat.List)
	if !ok {
		return
	}
	for _, v := range parts.Items {
		part, ok := v.(*chat.Dict)
		if !ok {
			continue
		}
		if kind, _ := part.Get("type"); kind == "refusal" {
			text, _ := part.Get("refusal")
			part.Set("type", "text")
			part.Set("text", text)
		}
	}
}

// checkPrefill rejects fields with which other servers continue the last message, which is message
// i.
func checkPrefill(f *wire.Fields, i int, last *chat.Dict) {
	for _, name := range []string{"prefix", "partial"} {
		if v, _ := last.Get(name); v == true {
			f.Fail(fmt.Sprintf("messages[%d].%s", i, name), "{} is not supported: use continue_final_message.")
		}
	}
}

func checkParts(f *wire.Fields, at string, parts *chat.List) {
	for i, v := range parts.Items {
		at := fmt.Sprintf("%s[%d]", at, i)
		p, ok := settings.Object(f, at, v)
		if !ok {
			return
		}
		kind, _ := p.Get("type")
		if kind != "text" {
			f.Fail(at+".type", "Invalid value for '%s.type': this model takes parts of type 'text' only.", at)
			return
		}
		if text, _ := p.Get("text"); !isString(text) {
			f.Fail(at+".text", "Missing or invalid '%s.text': expected a string.", at)
			return
		}
	}
}

func isString(v chat.Value) bool { _, ok := v.(string); return ok }

// decodeContinuation reads whether the answer continues the last message or is a new one.
func decodeContinuation(f *wire.Fields, r *chat.Request) {
	f.Bool("add_generation_prompt", &r.AddGenerationPrompt)
	f.Like("continue_final_message", new(bool), "")
	raw, ok := f.Raw("continue_final_message")
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
		f.WrongType("continue_final_message", "a boolean or the name of a field")
	}
}
