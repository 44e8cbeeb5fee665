package responses

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// A tool is a function, a custom tool, or a namespace of them, in the form of a response.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // of a function
	Strict      bool            `json:"strict"`     // of a function
	Format      json.RawMessage `json:"format"`     // of a custom tool
	Tools       []tool          `json:"tools"`      // of a namespace
}

// MarshalJSON writes the keys of the tool's type.
func (t tool) MarshalJSON() ([]byte, error) {
	switch t.Type {
	case typeNamespace:
		return encode(struct {
			Type        string  `json:"type"`
			Name        string  `json:"name"`
			Description *string `json:"description"`
			Tools       []tool  `json:"tools"`
		}{t.Type, t.Name, t.Description, t.Tools})
	case typeCustom:
		return encode(struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description *string         `json:"description"`
			Format      json.RawMessage `json:"format"`
		}{t.Type, t.Name, t.Description, t.Format})
	}
	return encode(struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description *string         `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	}{t.Type, t.Name, t.Description, t.Parameters, t.Strict})
}

// Samples implements schema.Sampler.
func (t tool) Samples() []any {
	return []any{tool{Type: typeFunction}, tool{Type: typeCustom, Format: anyText}, tool{Type: typeNamespace, Tools: []tool{{Type: typeFunction}}}}
}

const (
	typeFunction  = "function"
	typeWebSearch = "web_search"
)

// decodeTools decodes the fields about tools into c and r. It returns the functions of namespaces.
func decodeTools(f *wire.Fields, c *generate.Conversation, r *response) callees {
	r.Parallel = true
	f.Bool("parallel_tool_calls", &r.Parallel)
	c.SingleCall = !r.Parallel
	if f.Has("max_tool_calls") {
		r.MaxToolCalls = new(int)
		f.Integer("max_tool_calls", r.MaxToolCalls, 1, 1<<31-1) // limits hosted tools, which this server does not have
	}
	r.Tools = []tool{}
	q := toolReader{conversation: c}
	f.Objects("tools", "a list of tools", func(i int, in *wire.Fields) bool {
		var kind string
		in.String("type", &kind)
		switch {
		case kind == typeNamespace:
			r.Tools = append(r.Tools, q.decodeNamespace(in))
		case kind == typeWebSearch && offline(in): // it finds nothing
		default:
			r.Tools = append(r.Tools, q.decode(in, ""))
		}
		return true
	})
	f.Like("tools", []openaijson.Tool{})
	decodeChoice(f, c, r)
	return q.callees
}

// decode decodes a function or a custom tool, and adds it to the tools that the model sees. It may
// be in a namespace. intro precedes its description for the model.
func (q *toolReader) decode(in *wire.Fields, intro string) tool {
	var kind string
	if in.String("type", &kind); kind == typeCustom {
		return q.decodeCustom(in, intro)
	}
	t, described := decodeTool(in)
	described.Name, described.Description = q.seen(in, t.Name), introduced(intro, described.Description)
	c := q.conversation
	c.Tools = append(c.Tools, described)
	if t.Strict {
		if c.Strict == nil {
			c.Strict = map[string]bool{}
		}
		c.Strict[described.Name] = true
	}
	return t
}

// seen returns the name of a tool as the model sees it.
func (q *toolReader) seen(in *wire.Fields, name string) string {
	c := callee{q.namespace, name}
	seen := c.seen()
	if q.callees != nil && in.Err() == nil && slices.ContainsFunc(q.conversation.Tools, func(other text.Tool) bool { return other.Name == seen }) {
		in.Fail("name", "Invalid value for {}: the model would see two functions with the name %q.", short(seen))
	}
	if q.namespace != "" {
		q.callees[seen] = c
	}
	return seen
}

// introduced adds the description of the namespace before that of a tool.
func introduced(intro, description string) string {
	return strings.TrimPrefix(intro+"\n\n"+description, "\n\n")
}

// offline reports whether a web search must not fetch anything.
func offline(in *wire.Fields) bool {
	access := true
	in.Bool("external_web_access", &access)
	return !access
}

// decodeTool decodes a function. It rejects tools that the service itself would have to run; the
// error names the tool.
func decodeTool(in *wire.Fields) (t tool, described text.Tool) {
	required(in, "type", &t.Type)
	if t.Type != typeFunction && in.Err() == nil {
		in.Fail("type", "Invalid value for {}: the tool %q is not supported, as this server runs no tools: use a function or a custom tool.", short(t.Type))
	}
	required(in, "name", &t.Name)
	if in.Has("description") {
		t.Description = new(string)
		in.String("description", t.Description)
		described.Description = *t.Description
	}
	in.Bool("strict", &t.Strict)
	if _, ok := in.Object("parameters"); ok {
		raw, _ := in.Raw("parameters")
		t.Parameters = slices.Clone(raw)
	}
	described.Parameters = t.Parameters
	return t, described
}

// decodeChoice reads tool_choice: a word, a function, or a list of allowed tools.
func decodeChoice(f *wire.Fields, c *generate.Conversation, r *response) {
	r.ToolChoice = json.RawMessage(`"auto"`)
	f.Like("tool_choice", new(string), map[string]any{})
	raw, ok := f.Raw("tool_choice")
	if !ok {
		return
	}
	r.ToolChoice = slices.Clone(raw)
	var word string
	if json.Unmarshal(raw, &word) == nil {
		setMode(f, "tool_choice", word, c)
		return
	}
	o, ok := f.Object("tool_choice")
	if !ok {
		return
	}
	var kind string
	switch required(o, "type", &kind); kind {
	case "":
	case typeFunction, typeCustom:
		c.Tool = calleeOf(o)
		c.ToolChoice = generate.ToolsRequired
		o.FailWith(knows(o, "name", c.Tool, c.Tools))
	case "allowed_tools":
		decodeAllowed(o, c)
	default:
		o.Fail("type", "Invalid value for {}: %q is not supported; use \"function\", \"custom\" or \"allowed_tools\".", short(kind))
	}
}

// calleeOf returns the name of a function as the model sees it.
func calleeOf(o *wire.Fields) string {
	var c callee
	required(o, "name", &c.name)
	o.String("namespace", &c.namespace)
	return c.seen()
}

func setMode(f *wire.Fields, field, word string, c *generate.Conversation) {
	switch word {
	case "auto":
	case "none":
		c.ToolChoice = generate.ToolsNone
	case "required":
		c.ToolChoice = generate.ToolsRequired
	default:
		f.Fail(field, "Invalid value for {}: %q; expected \"auto\", \"none\", \"required\" or an object.", short(word))
	}
}

// knows returns an error if no tool has the name.
func knows(o *wire.Fields, field, name string, tools []text.Tool) error {
	if o.Err() != nil || slices.ContainsFunc(tools, func(t text.Tool) bool { return t.Name == name }) {
		return nil
	}
	return wire.Invalidf(o.Path(field), "Invalid value for '%s': 'tools' has no function %q.", o.Path(field), short(name))
}

// decodeAllowed reads {"type": "allowed_tools", "mode": …, "tools": […]}. Only the allowed tools
// are shown to the model.
func decodeAllowed(o *wire.Fields, c *generate.Conversation) {
	var mode string
	required(o, "mode", &mode)
	if mode != "auto" && mode != "required" {
		o.Fail("mode", "Invalid value for {}: expected \"auto\" or \"required\".")
	}
	setMode(o, "mode", mode, c)
	if !o.Has("tools") {
		o.Fail("tools", "Missing required parameter: {}.")
	}
	allowed := map[string]bool{}
	o.Objects("tools", "a list of tools", func(_ int, in *wire.Fields) bool {
		var kind string
		if in.String("type", &kind); kind != typeFunction && kind != typeCustom {
			in.Fail("type", "Invalid value for {}: expected %q or %q.", typeFunction, typeCustom)
		}
		name := calleeOf(in)
		in.FailWith(knows(in, "name", name, c.Tools))
		allowed[name] = true
		return true
	})
	c.Tools = slices.DeleteFunc(c.Tools, func(t text.Tool) bool { return !allowed[t.Name] })
	if len(c.Tools) == 0 {
		c.Tools = nil
	}
}
