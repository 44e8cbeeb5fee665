package responses

import (
	"encoding/json"
	"slices"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// A tool is a function that the model may call, or a namespace of functions, as a response shows it.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // of a function
	Strict      bool            `json:"strict"`     // of a function
	Tools       []tool          `json:"tools"`      // of a namespace
}

// MarshalJSON writes the keys of the tool's type.
func (t tool) MarshalJSON() ([]byte, error) {
	if t.Type == typeNamespace {
		return encode(struct {
			Type        string  `json:"type"`
			Name        string  `json:"name"`
			Description *string `json:"description"`
			Tools       []tool  `json:"tools"`
		}{t.Type, t.Name, t.Description, t.Tools})
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
	return []any{tool{Type: typeFunction}, tool{Type: typeNamespace, Tools: []tool{{Type: typeFunction}}}}
}

const (
	typeFunction  = "function"
	typeWebSearch = "web_search"
)

// decodeTools reads the fields about tools into c and r. It returns the functions of namespaces.
func decodeTools(f *wire.Fields, c *generate.Conversation, r *response) callees {
	r.Parallel = true
	f.Bool("parallel_tool_calls", &r.Parallel)
	c.SingleCall = !r.Parallel
	if f.Has("max_tool_calls") {
		r.MaxToolCalls = new(int)
		f.Integer("max_tool_calls", r.MaxToolCalls, 1, 1<<31-1) // of hosted tools, of which there are none
	}
	r.Tools = []tool{}
	q := toolReader{conversation: c}
	f.Objects("tools", "a list of tools", func(i int, in *wire.Fields) bool {
		var kind string
		in.String("type", &kind)
		switch {
		case kind == typeNamespace:
			r.Tools = append(r.Tools, q.decodeNamespace(in))
		case kind == typeWebSearch && offline(in): // of an empty cache
		default:
			t, described := decodeTool(in)
			r.Tools = append(r.Tools, t)
			q.add(in, described, t.Strict)
		}
		return true
	})
	decodeChoice(f, c, r)
	return q.callees
}

// add adds a function to those that the model sees.
func (q *toolReader) add(in *wire.Fields, t text.Tool, strict bool) {
	c := q.conversation
	if q.callees != nil && in.Err() == nil && slices.ContainsFunc(c.Tools, func(other text.Tool) bool { return other.Name == t.Name }) {
		in.Fail("name", "Invalid value for {}: the model would see two functions with the name %q.", short(t.Name))
	}
	c.Tools = append(c.Tools, t)
	if strict {
		if c.Strict == nil {
			c.Strict = map[string]bool{}
		}
		c.Strict[t.Name] = true
	}
}

// offline reports whether a web search may fetch nothing.
func offline(in *wire.Fields) bool {
	access := true
	in.Bool("external_web_access", &access)
	return !access
}

// decodeTool reads a function. Tools that a service would run for the client are rejected by name.
func decodeTool(in *wire.Fields) (t tool, described text.Tool) {
	required(in, "type", &t.Type)
	if t.Type != typeFunction && in.Err() == nil {
		in.Fail("type", "Invalid value for {}: the tool %q is not supported, as this server runs no tools: use a function.", short(t.Type))
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
	described.Name, described.Parameters = t.Name, t.Parameters
	return t, described
}

// decodeChoice reads tool_choice: a word, a function, or the tools that are allowed.
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
	case typeFunction:
		c.Tool = calleeOf(o)
		c.ToolChoice = generate.ToolsRequired
		o.FailWith(knows(o, "name", c.Tool, c.Tools))
	case "allowed_tools":
		decodeAllowed(o, c)
	default:
		o.Fail("type", "Invalid value for {}: %q is not supported; use \"function\" or \"allowed_tools\".", short(kind))
	}
}

// calleeOf reads the name of a function, as the model sees it.
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

// knows fails if no tool has the name.
func knows(o *wire.Fields, field, name string, tools []text.Tool) error {
	if o.Err() != nil || slices.ContainsFunc(tools, func(t text.Tool) bool { return t.Name == name }) {
		return nil
	}
	return wire.Invalidf(o.Path(field), "Invalid value for '%s': there is no function %q in 'tools'.", o.Path(field), short(name))
}

// decodeAllowed reads {"type": "allowed_tools", "mode": …, "tools": […]}. The model sees the allowed tools only.
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
		if in.String("type", &kind); kind != typeFunction {
			in.Fail("type", "Invalid value for {}: expected %q.", typeFunction)
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
