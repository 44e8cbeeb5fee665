package messages

import (
	"slices"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/text"
)

// decodeTools reads the tools and tool_choice.
func decodeTools(f *wire.Fields, q *request) {
	c := &q.conversation
	f.Objects("tools", "a list of tools", func(_ int, in *wire.Fields) bool {
		t, strict := decodeTool(in)
		q.notice(in)
		if in.Err() == nil && slices.ContainsFunc(c.Tools, func(other text.Tool) bool { return other.Name == t.Name }) {
			in.Fail("name", "Invalid value for {}: tool names must be unique, got %q twice.", short(t.Name))
		}
		c.Tools = append(c.Tools, t)
		if strict {
			if c.Strict == nil {
				c.Strict = map[string]bool{}
			}
			c.Strict[t.Name] = true
		}
		return true
	})
	decodeChoice(f, c)
}

// decodeTool reads a client's tool. It rejects tools that the service itself would have to run; the
// error names the tool.
func decodeTool(in *wire.Fields) (t text.Tool, strict bool) {
	kind := "custom"
	if in.String("type", &kind); kind != "custom" {
		in.Fail("type", "Invalid value for {}: the tool %q is not supported, as %s: use one with a name, a description and an input_schema.", short(kind), whyNot(kind))
	}
	required(in, "name", &t.Name)
	in.String("description", &t.Description)
	in.Bool("strict", &strict)
	if _, ok := in.Object("input_schema"); ok {
		raw, _ := in.Raw("input_schema")
		t.Parameters = slices.Clone(raw)
	} else {
		in.Fail("input_schema", "Missing required parameter: {}.")
	}
	return t, strict
}

// whyNot returns why a tool that Anthropic defines is not supported.
func whyNot(kind string) string {
	for _, name := range []string{"bash_", "computer_", "memory_", "text_editor_"} { // the client runs these tools
		if strings.HasPrefix(kind, name) {
			return "only models that were trained with it know its input"
		}
	}
	return "this server runs no tools"
}

// decodeChoice reads tool_choice.
func decodeChoice(f *wire.Fields, c *generate.Conversation) {
	o, ok := f.Object("tool_choice")
	if !ok {
		return
	}
	var kind string
	required(o, "type", &kind)
	o.Bool("disable_parallel_tool_use", &c.SingleCall)
	switch kind {
	case "auto":
	case "none":
		c.ToolChoice = generate.ToolsNone
	case "any", "tool":
		c.ToolChoice = generate.ToolsRequired
		if kind == "tool" {
			required(o, "name", &c.Tool)
		}
		if c.Tool != "" && o.Err() == nil && !slices.ContainsFunc(c.Tools, func(t text.Tool) bool { return t.Name == c.Tool }) {
			o.Fail("name", "Invalid value for {}: 'tools' has no tool %q.", short(c.Tool))
		}
	default:
		o.Fail("type", "Invalid value for {}: %q; expected \"auto\", \"any\", \"tool\" or \"none\".", short(kind))
	}
}
