package text

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/heftai/heft/internal/chat"
)

// A Message is one message of a conversation. Its JSON is that of OpenAI's chat completions. JSON
// fields without a field here are kept and passed to the template.
type Message struct {
	Role    string // "system", "user", "assistant", "tool" or another role of the template
	Content string
	// Reasoning is an assistant's reasoning before its answer (reasoning_content).
	Reasoning string
	ToolCalls []ToolCall // of an assistant
	// ToolCallID and Name identify the call that a message of the role "tool" answers.
	ToolCallID string
	Name       string

	raw *chat.Dict // the JSON from which the message was decoded
}

// System returns a message of the role "system".
func System(content string) Message { return Message{Role: "system", Content: content} }

// User returns a message of the role "user".
func User(content string) Message { return Message{Role: "user", Content: content} }

// Assistant returns a message of the role "assistant".
func Assistant(content string) Message { return Message{Role: "assistant", Content: content} }

// ToolResult returns a message of the role "tool" that answers call.
func ToolResult(call ToolCall, content string) Message {
	return Message{Role: "tool", Content: content, ToolCallID: call.ID, Name: call.Name}
}

// A ToolCall is a call of a function that the model requests.
type ToolCall struct {
	ID, Name  string
	Arguments string // a JSON object
}

// A Tool describes a function that the model may call.
type Tool struct {
	Name, Description string
	Parameters        json.RawMessage // the JSON schema of the arguments; nil for none

	raw *chat.Dict
}

// A Conversation is the input of [Chat.Render].
type Conversation struct {
	Messages []Message // oldest first; at least one
	Tools    []Tool    // tools that the model may call; nil for none
	// Documents are JSON objects for retrieval templates; nil for none.
	Documents []any
	// AddGenerationPrompt ends the prompt with the header of the assistant's answer. Set it for
	// generation, and leave it unset for training.
	AddGenerationPrompt bool
	// ContinueFinalMessage names a field of the last message that the model continues, usually
	// "content"; "" for none. It excludes AddGenerationPrompt.
	ContinueFinalMessage string
	// Arguments are additional variables of the template, such as enable_thinking. They may also
	// contain arguments of apply_chat_template, such as add_generation_prompt.
	Arguments map[string]any
	// Now is the time that templates use as the current date. Zero means the present in local time.
	Now time.Time
	// Exact renders the messages unchanged, as transformers' apply_chat_template does. Otherwise
	// [Chat.Render] adapts them to the template.
	Exact bool
}

// MessageOf converts a JSON object to a message. v is a Message, a json.RawMessage, a []byte, or
// any value that encoding/json writes as an object. MessageOf fails for any other value.
func MessageOf(v any) (Message, error) {
	if m, ok := v.(Message); ok {
		return m, nil
	}
	d, err := objectOf(v)
	if err != nil {
		return Message{}, fmt.Errorf("text: message: %w", err)
	}
	return readMessage(d), nil
}

// ToolOf converts a JSON object to a tool, as [MessageOf] does for messages. The object is {"type":
// "function", "function": {…}}, or the inner object alone.
func ToolOf(v any) (Tool, error) {
	if t, ok := v.(Tool); ok {
		return t, nil
	}
	d, err := objectOf(v)
	if err != nil {
		return Tool{}, fmt.Errorf("text: tool: %w", err)
	}
	return readTool(d), nil
}

// UnmarshalJSON decodes a message and keeps unknown fields.
func (m *Message) UnmarshalJSON(b []byte) (err error) {
	*m, err = MessageOf(json.RawMessage(b))
	return err
}

// MarshalJSON writes the message as OpenAI's chat completions do.
func (m Message) MarshalJSON() ([]byte, error) { return appendJSON(nil, m.object()) }

// UnmarshalJSON decodes a tool and keeps unknown fields.
func (t *Tool) UnmarshalJSON(b []byte) (err error) {
	*t, err = ToolOf(json.RawMessage(b))
	return err
}

// MarshalJSON writes {"type": "function", "function": {…}}.
func (t Tool) MarshalJSON() ([]byte, error) {
	d, err := t.object()
	if err != nil {
		return nil, err
	}
	return appendJSON(nil, d)
}

func textOf(d *chat.Dict, key string) string {
	v, _ := d.Get(key)
	s, _ := v.(string)
	return s
}

func readMessage(d *chat.Dict) Message {
	m := Message{Role: textOf(d, "role"), Content: textOf(d, "content"), Reasoning: textOf(d, "reasoning_content"),
		ToolCallID: textOf(d, "tool_call_id"), Name: textOf(d, "name"), raw: d}
	calls, _ := d.Get("tool_calls")
	list, ok := calls.(*chat.List)
	if !ok {
		return m
	}
	for _, v := range list.Items {
		call, ok := v.(*chat.Dict)
		if !ok {
			continue
		}
		c := ToolCall{ID: textOf(call, "id")}
		if f, ok := call.Get("function"); ok {
			call, _ = f.(*chat.Dict)
		}
		c.Name = textOf(call, "name")
		switch a, _ := call.Get("arguments"); a := a.(type) {
		case string:
			c.Arguments = a
		case *chat.Dict:
			b, _ := appendJSON(nil, a) // a decoded object always encodes
			c.Arguments = string(b)
		}
		m.ToolCalls = append(m.ToolCalls, c)
	}
	return m
}

// object returns the message in the form for templates. Fields that were changed since it was
// decoded replace those of its JSON.
func (m Message) object() *chat.Dict {
	was := Message{}
	d := m.raw
	if d == nil {
		d = chat.NewDict("role", m.Role, "content", m.Content)
		was.Role, was.Content = m.Role, m.Content
	} else if was = readMessage(d); !reflect.DeepEqual(was, m) {
		d = d.Clone()
	}
	set := func(key, now, before string) {
		if now != before {
			d.Set(key, now)
		}
	}
	set("role", m.Role, was.Role)
	set("content", m.Content, was.Content)
	set("reasoning_content", m.Reasoning, was.Reasoning)
	if !reflect.DeepEqual(m.ToolCalls, was.ToolCalls) {
		calls := chat.NewList()
		for _, c := range m.ToolCalls {
			calls.Items = append(calls.Items, chat.NewDict("id", c.ID, "type", "function",
				"function", chat.NewDict("name", c.Name, "arguments", c.Arguments)))
		}
		d.Set("tool_calls", calls)
	}
	set("tool_call_id", m.ToolCallID, was.ToolCallID)
	set("name", m.Name, was.Name)
	return d
}

func readTool(d *chat.Dict) Tool {
	t := Tool{raw: d}
	if f, ok := d.Get("function"); ok {
		d, _ = f.(*chat.Dict)
	}
	t.Name, t.Description = textOf(d, "name"), textOf(d, "description")
	if p, ok := d.Get("parameters"); ok && p != nil {
		t.Parameters, _ = appendJSON(nil, p) // a decoded value always encodes
	}
	return t
}

func (t Tool) object() (*chat.Dict, error) {
	if t.raw != nil && reflect.DeepEqual(readTool(t.raw), t) {
		return t.raw, nil
	}
	f := chat.NewDict("name", t.Name)
	if t.Description != "" {
		f.Set("description", t.Description)
	}
	if len(t.Parameters) > 0 {
		p, err := chat.Decode(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("text: tool %s: parameters: %w", t.Name, err)
		}
		f.Set("parameters", p)
	}
	return chat.NewDict("type", "function", "function", f), nil
}
