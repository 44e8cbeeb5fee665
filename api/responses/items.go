package responses

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// An inputItem is an item of a request or of a stored response. Its JSON is the form of
// input_items.
type inputItem struct {
	Type      string
	ID        string
	Role      string // of a message
	Text      string // of all parts
	CallID    string
	Namespace string // of a call's function
	Name      string
	Arguments string // of a function, or the text for a custom tool
	parts     []inputPart
	encrypted string // of reasoning
}

type inputPart struct{ kind, text string }

// maxItems is the maximum number of items of a request.
const maxItems = 1 << 14

// decodeInput reads the field input: a text or a list of items.
func decodeInput(f *wire.Fields) (items []*inputItem) {
	f.Like("input", "", []map[string]any{})
	raw, ok := f.Raw("input")
	if !ok {
		return nil
	}
	var words string
	if json.Unmarshal(raw, &words) == nil {
		return []*inputItem{{Type: typeMessage, Role: "user", Text: words, parts: []inputPart{{inputText, words}}}}
	}
	f.Objects("input", "a string or a list of items", func(i int, in *wire.Fields) bool {
		if i == maxItems {
			f.Fail("input", "Invalid value for {}: more than %d items.", maxItems)
			return false
		}
		items = append(items, decodeItem(in))
		return true
	})
	return items
}

// decodeItem decodes one item. A message needs no type.
func decodeItem(in *wire.Fields) *inputItem {
	item := &inputItem{}
	in.String("type", &item.Type)
	in.String("id", &item.ID)
	switch {
	case item.Type == "" && (in.Has("role") || in.Has("content")):
		item.Type = typeMessage
	case item.Type == "" && item.ID != "":
		item.Type = typeReference
	}
	switch item.Type {
	case typeMessage:
		decodeMessage(in, item)
	case typeCall:
		required(in, "call_id", &item.CallID)
		in.String("namespace", &item.Namespace)
		required(in, "name", &item.Name)
		in.String("arguments", &item.Arguments)
	case typeCustomCall:
		required(in, "call_id", &item.CallID)
		in.String("namespace", &item.Namespace)
		required(in, "name", &item.Name)
		in.String("input", &item.Arguments)
	case typeOutput, typeCustomOutput:
		required(in, "call_id", &item.CallID)
		if !in.Has("output") {
			in.Fail("output", "Missing required parameter: {}.")
		}
		decodeContent(in, "output", item, inputText)
	case typeReasoning:
		decodeReasoning(in, item)
	case typeReference:
		required(in, "id", &item.ID)
	case "":
		in.Fail("type", "Missing required parameter: {}.")
	default:
		in.Fail("type", "Invalid value for {}: items of type %q are not supported, only messages, calls of functions and custom tools, their outputs, reasoning and item references.", short(item.Type))
	}
	return item
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

func decodeMessage(in *wire.Fields, item *inputItem) {
	required(in, "role", &item.Role)
	kind := inputText
	switch item.Role {
	case "assistant":
		kind = outputText
	case "user", "system", "developer":
	default:
		in.Fail("role", "Invalid value for {}: %q; expected \"user\", \"assistant\", \"system\" or \"developer\".", short(item.Role))
	}
	if !in.Has("content") {
		in.Fail("content", "Missing required parameter: {}.")
	}
	decodeContent(in, "content", item, kind)
}

// decodeContent reads a text or a list of parts of text.
func decodeContent(in *wire.Fields, name string, item *inputItem, kind string) {
	raw, ok := in.Raw(name)
	if !ok {
		return
	}
	if json.Unmarshal(raw, &item.Text) == nil {
		item.parts = []inputPart{{kind, item.Text}}
		return
	}
	in.Objects(name, "a string or a list of parts", func(_ int, p *wire.Fields) bool {
		item.parts = append(item.parts, decodePart(p))
		return true
	})
	texts := make([]string, len(item.parts))
	for i, p := range item.parts {
		texts[i] = p.text
	}
	item.Text = strings.Join(texts, "\n")
}

func decodePart(p *wire.Fields) (out inputPart) {
	switch p.String("type", &out.kind); out.kind {
	case inputText, outputText, plainText:
		if !p.Has("text") {
			p.Fail("text", "Missing required parameter: {}.")
		}
		p.String("text", &out.text)
	case refusalText:
		p.String("refusal", &out.text)
	case "":
		p.Fail("type", "Missing required parameter: {}.")
	case "input_image", "input_file", "input_audio", "input_video", "computer_screenshot":
		p.Fail("type", "Invalid value for {}: %q is not supported, as this model reads text only.", out.kind)
	default:
		p.Fail("type", "Invalid value for {}: %q; this model takes parts of type \"input_text\" and \"output_text\".", short(out.kind))
	}
	return out
}

// decodeReasoning reads the text of a reasoning item: its content, or its encrypted_content if this
// server wrote it, or its summary.
func decodeReasoning(in *wire.Fields, item *inputItem) {
	in.String("encrypted_content", &item.encrypted)
	read := func(name string) (texts []string) {
		in.Objects(name, "a list of parts", func(_ int, p *wire.Fields) bool {
			var kind, words string
			switch p.String("type", &kind); kind {
			case reasoningText, summaryText, plainText:
			default:
				p.Fail("type", "Invalid value for {}: expected %q.", reasoningText)
			}
			p.String("text", &words)
			texts = append(texts, words)
			return true
		})
		return texts
	}
	content, summary := read("content"), read("summary")
	for _, words := range content {
		item.parts = append(item.parts, inputPart{reasoningText, words})
	}
	item.Text = strings.Join(content, "\n")
	if item.Text == "" {
		item.Text, _ = unsealReasoning(item.encrypted)
	}
	if item.Text == "" {
		item.Text = strings.Join(summary, "\n")
	}
}

// MarshalJSON writes the item in the form of input_items.
func (i *inputItem) MarshalJSON() ([]byte, error) {
	switch i.Type {
	case typeCall, typeCustomCall, typeReasoning:
		out := &outputItem{Type: i.Type, ID: i.ID, Status: completed, CallID: i.CallID, Namespace: i.Namespace, Name: i.Name}
		out.setInput(i.Arguments)
		for _, p := range i.parts {
			out.Content = append(out.Content, part{Type: p.kind, Text: p.text})
		}
		out.Encrypted = orNull(i.encrypted)
		return out.MarshalJSON()
	case typeOutput, typeCustomOutput:
		return encode(struct {
			ID     string `json:"id"`
			Type   string `json:"type"`
			Status string `json:"status"`
			CallID string `json:"call_id"`
			Output string `json:"output"`
		}{i.ID, i.Type, completed, i.CallID, i.Text})
	case typeReference:
		return encode(struct {
			ID   string `json:"id"`
			Type string `json:"type"`
		}{i.ID, i.Type})
	}
	return encode(struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Status  string `json:"status"`
		Role    string `json:"role"`
		Content []part `json:"content"`
	}{i.ID, i.Type, completed, i.Role, i.shown()})
}

// Samples implements schema.Sampler.
func (i *inputItem) Samples() []any {
	return []any{&inputItem{Type: typeMessage}, &inputItem{Type: typeOutput}, &inputItem{Type: typeReference}, &inputItem{Type: typeCall},
		&inputItem{Type: typeCustomCall}, &inputItem{Type: typeCustomOutput}, &inputItem{Type: typeReasoning}}
}

// shown returns the parts of a message.
func (i *inputItem) shown() []part {
	parts := make([]part, len(i.parts))
	for k, p := range i.parts {
		parts[k] = part{Type: inputText, Text: p.text}
		if i.Role == "assistant" {
			parts[k].Type = outputText
		}
	}
	return parts
}

// nameItems gives each item without an id an id with the suffix of its response.
func nameItems(items []*inputItem, suffix string) {
	for i, item := range items {
		if item.ID == "" {
			item.ID = itemID(item.Type, suffix, "i"+strconv.Itoa(i))
		}
	}
}

// A transcript converts items to messages. Consecutive items of reasoning, text and calls of the
// model become one message.
type transcript struct {
	messages []text.Message
	turn     *text.Message     // the model's open turn
	calls    map[string]string // the functions of calls by call_id
}

// add adds an item. It returns what is wrong with the item, or "".
func (t *transcript) add(item *inputItem) string {
	switch item.Type {
	case typeReasoning:
		if t.turn != nil && (t.turn.Content != "" || len(t.turn.ToolCalls) > 0) {
			t.flush()
		}
		m := t.model()
		m.Reasoning = joined(m.Reasoning, item.Text)
	case typeCall, typeCustomCall:
		m := t.model()
		function, arguments := callee{item.Namespace, item.Name}.seen(), item.Arguments
		if item.Type == typeCustomCall {
			arguments = generate.CustomArguments(arguments)
		}
		m.ToolCalls = append(m.ToolCalls, text.ToolCall{ID: item.CallID, Name: function, Arguments: arguments})
		if t.calls == nil {
			t.calls = map[string]string{}
		}
		t.calls[item.CallID] = function
	case typeOutput, typeCustomOutput:
		function, known := t.calls[item.CallID]
		if !known {
			return "No tool call found for function call output with call_id " + short(item.CallID) + "."
		}
		t.flush()
		t.messages = append(t.messages, text.ToolResult(text.ToolCall{ID: item.CallID, Name: function}, item.Text))
	case typeMessage:
		if item.Role != "assistant" {
			t.flush()
			t.messages = append(t.messages, text.Message{Role: item.Role, Content: item.Text})
			break
		}
		if t.turn != nil && (t.turn.Content != "" || len(t.turn.ToolCalls) > 0) {
			t.flush()
		}
		t.model().Content = item.Text
	}
	return ""
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// model returns the model's turn.
func (t *transcript) model() *text.Message {
	if t.turn == nil {
		t.turn = &text.Message{Role: "assistant"}
	}
	return t.turn
}

// flush ends the model's turn.
func (t *transcript) flush() {
	if t.turn != nil {
		t.messages = append(t.messages, *t.turn)
		t.turn = nil
	}
}
