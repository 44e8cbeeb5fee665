package ollama

import (
	"encoding/json"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// maxMessages is the maximum number of messages of a request.
const maxMessages = 100000

// A transcript converts a request's messages to a conversation.
type transcript struct {
	*request
	messages []text.Message
	open     []text.ToolCall // calls without a result, oldest first
	fit      *generate.LengthCheck
	bytes    int
}

// wantMessages describes the type of the field "messages" in errors.
const wantMessages = "a list of messages"

// decodeMessages reads the messages. The error is kept in f. Without messages the request is empty.
func decodeMessages(f *wire.Fields, q *request) {
	t := &transcript{request: q, fit: q.model.NewLengthCheck("messages")}
	f.Objects("messages", wantMessages, func(i int, in *wire.Fields) bool {
		if i == maxMessages {
			f.Fail("messages", "Invalid value for {}: more than %d messages.", maxMessages)
			return false
		}
		t.message(in)
		return true
	})
	q.empty = len(t.messages) == 0
	if f.Err() != nil || q.empty {
		return
	}
	if last := &t.messages[len(t.messages)-1]; last.Role == "assistant" && len(last.ToolCalls) == 0 {
		q.conversation.ContinueFinalMessage = "content"
	}
	q.conversation.Messages = t.messages
	f.Work(renderCopies * t.bytes)
}

// message decodes one message.
func (t *transcript) message(in *wire.Fields) {
	m := text.Message{}
	if in.String("role", &m.Role); m.Role == "" {
		in.Fail("role", "Missing required parameter: {}.")
	}
	in.Refuse([]wire.Unsupported{{Field: "images", Reason: "this model reads text only."}})
	in.String("content", &m.Content)
	in.String("thinking", &m.Reasoning)
	t.count(in, m.Content)
	t.count(in, m.Reasoning)
	switch m.Role {
	case "tool":
		t.messages = append(t.messages, text.ToolResult(t.answered(in), m.Content))
		return
	case "assistant":
		t.open = nil
		in.Objects("tool_calls", "a list of calls", func(i int, call *wire.Fields) bool {
			m.ToolCalls = append(m.ToolCalls, t.call(i, call))
			return true
		})
	}
	t.messages = append(t.messages, m)
}

// count checks that the conversation with a further text may fit into the context.
func (t *transcript) count(in *wire.Fields, words string) {
	in.FailWith(t.fit.Add(words))
	t.bytes += len(words)
}

// call decodes a call of the model. A call without an id gets one, because templates need it.
func (t *transcript) call(i int, in *wire.Fields) text.ToolCall {
	c := text.ToolCall{Arguments: "{}"}
	in.String("id", &c.ID)
	fn, ok := in.Object("function")
	if !ok {
		in.Fail("function", "Missing required parameter: {}.")
		return c
	}
	if fn.String("name", &c.Name); c.Name == "" {
		fn.Fail("name", "Missing required parameter: {}.")
	}
	if raw, ok := fn.Raw("arguments"); ok {
		var written string // the form of OpenAI's clients
		if json.Unmarshal(raw, &written) == nil {
			c.Arguments = written
		} else if _, ok := fn.Object("arguments"); ok {
			c.Arguments = string(raw)
		}
		t.count(in, c.Arguments)
	}
	if c.ID == "" && t.model.Chat != nil {
		c.ID = t.model.Chat.NewCallID(c.Name, i)
	}
	t.open = append(t.open, c)
	return c
}

// answered returns the call that a tool's message answers. It looks for the message's id, then for
// the first open call of the tool's name, then for the first open call.
func (t *transcript) answered(in *wire.Fields) text.ToolCall {
	var c text.ToolCall
	in.String("tool_call_id", &c.ID)
	if in.String("tool_name", &c.Name); c.Name == "" {
		in.String("name", &c.Name)
	}
	for i, open := range t.open {
		if c.ID == open.ID || c.ID == "" && (c.Name == "" || c.Name == open.Name) {
			t.open = append(t.open[:i:i], t.open[i+1:]...)
			return open
		}
	}
	return c
}

// decodeTools decodes the tools, which have OpenAI's form.
func decodeTools(f *wire.Fields, c *generate.Conversation) {
	f.Objects("tools", "a list of tools", func(i int, in *wire.Fields) bool {
		kind := "function"
		if in.String("type", &kind); kind != "function" {
			in.Fail("type", "Invalid value for {}: %q; expected \"function\".", short(kind))
		}
		fn, ok := in.Object("function")
		if !ok {
			in.Fail("function", "Missing required parameter: {}.")
			return false
		}
		var tool text.Tool
		if fn.String("name", &tool.Name); tool.Name == "" {
			fn.Fail("name", "Missing required parameter: {}.")
		}
		fn.String("description", &tool.Description)
		if _, ok := fn.Object("parameters"); ok {
			raw, _ := fn.Raw("parameters")
			tool.Parameters = append(json.RawMessage{}, raw...)
		}
		c.Tools = append(c.Tools, tool)
		return true
	})
}
