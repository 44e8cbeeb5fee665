package messages

import (
	"encoding/json"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// maxMessages is the maximum number of messages of a request, the same as Anthropic's.
const maxMessages = 100000

// A transcript converts a request's messages to a conversation. Consecutive messages of one role
// become one message. A tool's result becomes a message of its own.
type transcript struct {
	*request
	messages []text.Message
	calls    map[string]string // the names of the tools by id of the call
	open     map[string]bool   // calls of the last message that have no result yet
	fit      *generate.LengthCheck
	bytes    int
}

// decodeConversation reads the system prompt and the messages. The error is kept in f.
func decodeConversation(f *wire.Fields, q *request) {
	t := &transcript{request: q, calls: map[string]string{}, fit: q.model.NewLengthCheck("messages")}
	system := ""
	t.blocks(f, "system", func(words string) { system = joined(system, words) }, func(in *wire.Fields, kind string) {
		in.Fail("type", "Invalid value for {}: %q; the system prompt takes blocks of type \"text\".", short(kind))
	})
	if system != "" {
		t.messages = append(t.messages, text.System(system))
	}
	begin := len(t.messages)
	f.Like("system", new(string), []map[string]any{})
	f.Objects("messages", "a list of messages", func(i int, in *wire.Fields) bool {
		if i == maxMessages {
			f.Fail("messages", "Invalid value for {}: more than %d messages.", maxMessages)
			return false
		}
		t.message(in)
		return true
	})
	switch {
	case f.Err() != nil:
		return
	case len(t.messages) == begin:
		f.Fail("messages", "Invalid value for {}: there must be at least one message.")
		return
	}
	c := &q.conversation
	if last := t.messages[len(t.messages)-1]; last.Role == "assistant" {
		for id := range t.open {
			f.Fail("messages", "Invalid value for {}: the call %q of the last message has no tool_result.", short(id))
			return
		}
		c.ContinueFinalMessage = "content"
	}
	c.Messages = t.messages
	c.AddGenerationPrompt = c.ContinueFinalMessage == ""
	f.Work(renderCopies * t.bytes)
}

// message decodes one message.
func (t *transcript) message(in *wire.Fields) {
	var role string
	required(in, "role", &role)
	if !in.Has("content") {
		in.Fail("content", "Missing required parameter: {}.")
	}
	switch role {
	case "user":
		empty := t.blocks(in, "content", func(words string) {
			m := t.last("user")
			m.Content = joined(m.Content, words)
		}, t.ofUser)
		if empty {
			in.Fail("content", "Invalid value for {}: it is empty.")
		}
	case "assistant":
		t.open = map[string]bool{}
		m := t.last("assistant")
		t.blocks(in, "content", func(words string) { m.Content = joined(m.Content, words) }, func(b *wire.Fields, kind string) { t.ofModel(m, b, kind) })
	case "system":
		m := t.last("developer") // placed where the template allows it
		t.blocks(in, "content", func(words string) { m.Content = joined(m.Content, words) }, func(b *wire.Fields, kind string) { t.unsupported(b, kind, `"text"`) })
	default:
		in.Fail("role", "Invalid value for {}: %q; expected \"user\", \"assistant\" or \"system\".", short(role))
	}
}

// blocks decodes a text or a list of content blocks. It calls say with texts and block with other
// blocks. It reports whether there was a list without blocks.
func (t *transcript) blocks(in *wire.Fields, name string, say func(words string), block func(in *wire.Fields, kind string)) (empty bool) {
	raw, ok := in.Raw(name)
	if !ok {
		return false
	}
	var words string
	if json.Unmarshal(raw, &words) == nil {
		t.count(in, words)
		say(words)
		return false
	}
	empty = true
	in.Objects(name, "a string or a list of content blocks", func(_ int, b *wire.Fields) bool {
		empty = false
		var kind string
		required(b, "type", &kind)
		t.notice(b)
		switch {
		case kind == "text":
			say(t.text(b, "text"))
		case kind == "document":
			t.document(b, say)
		case kind != "":
			block(b, kind)
		}
		return true
	})
	return empty
}

// notice records whether a request has a cache_control. It does not change the answer, only the
// form of usage.
func (q *request) notice(in *wire.Fields) { q.cached = q.cached || in.Has("cache_control") }

// text decodes the text of a block.
func (t *transcript) text(in *wire.Fields, name string) (words string) {
	if !in.Has(name) {
		in.Fail(name, "Missing required parameter: {}.")
	}
	in.String(name, &words)
	t.count(in, words)
	return words
}

// count checks that the conversation with a further text may fit into the context.
func (t *transcript) count(in *wire.Fields, words string) {
	in.FailWith(t.fit.Add(words))
	t.bytes += len(words)
}

// last returns the last message if it has the given role, and otherwise a new one.
func (t *transcript) last(role string) *text.Message {
	if n := len(t.messages); n > 0 && t.messages[n-1].Role == role {
		return &t.messages[n-1]
	}
	t.messages = append(t.messages, text.Message{Role: role})
	return &t.messages[len(t.messages)-1]
}

// document decodes a document of text: its title, its context, then the text. Other documents are rejected.
func (t *transcript) document(in *wire.Fields, say func(words string)) {
	if cite, ok := in.Object("citations"); ok {
		enabled := false
		if cite.Bool("enabled", &enabled); enabled {
			cite.Fail("enabled", "Invalid value for {}: the answer of this model cites no documents.")
		}
	}
	var words string
	for _, name := range []string{"title", "context"} {
		if in.Has(name) {
			words = joined(words, t.text(in, name))
		}
	}
	source, ok := in.Object("source")
	if !ok {
		in.Fail("source", "Missing required parameter: {}.")
		return
	}
	var kind string
	required(source, "type", &kind)
	switch kind {
	case "":
	case "text":
		words = joined(words, t.text(source, "data"))
	case "content":
		t.blocks(source, "content", func(part string) { words = joined(words, part) }, func(part *wire.Fields, kind string) { t.unsupported(part, kind, `"text"`) })
	default:
		source.Fail("type", "Invalid value for {}: a document of type %q is not supported, as this model reads text only; send its text.", short(kind))
	}
	say(words)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// ofUser adds a block of a user's message.
func (t *transcript) ofUser(in *wire.Fields, kind string) {
	if kind != "tool_result" {
		t.unsupported(in, kind, `"text" and "tool_result"`)
		return
	}
	t.result(in)
}

// result adds the result of a call.
func (t *transcript) result(in *wire.Fields) {
	var id, words string
	required(in, "tool_use_id", &id)
	name, known := t.calls[id]
	if !known {
		in.Fail("tool_use_id", "Invalid value for {}: no tool_use block before it has the id %q.", short(id))
	}
	delete(t.open, id)
	t.blocks(in, "content", func(part string) { words = joined(words, part) }, func(part *wire.Fields, kind string) { t.unsupported(part, kind, `"text"`) })
	failed := false
	if in.Bool("is_error", &failed); failed { // templates have no variable for it
		words = "Error: " + words
	}
	t.messages = append(t.messages, text.ToolResult(text.ToolCall{ID: id, Name: name}, words))
}

// ofModel adds a block of the model's message.
func (t *transcript) ofModel(m *text.Message, in *wire.Fields, kind string) {
	switch kind {
	case "thinking":
		m.Reasoning = joined(m.Reasoning, t.text(in, "thinking"))
	case "redacted_thinking": // encrypted by another service; it cannot be read
	case "tool_use":
		call := text.ToolCall{Arguments: "{}"}
		required(in, "id", &call.ID)
		required(in, "name", &call.Name)
		if _, ok := in.Object("input"); ok {
			raw, _ := in.Raw("input")
			call.Arguments = string(raw)
			t.count(in, call.Arguments)
		} else {
			in.Fail("input", "Missing required parameter: {}.")
		}
		m.ToolCalls = append(m.ToolCalls, call)
		t.calls[call.ID], t.open[call.ID] = call.Name, true
	default:
		t.unsupported(in, kind, `"text", "thinking", "redacted_thinking" and "tool_use"`)
	}
}

// unsupported rejects a block. known lists the supported types.
func (t *transcript) unsupported(in *wire.Fields, kind, known string) {
	switch kind {
	case "image", "file", "container_upload":
		in.Fail("type", "Invalid value for {}: %q is not supported, as this model reads text only.", kind)
	default:
		in.Fail("type", "Invalid value for {}: %q; blocks of type %s are supported here.", short(kind), known)
	}
}
