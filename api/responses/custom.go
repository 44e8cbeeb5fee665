package responses

import (
	"encoding/json"
	"slices"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// Custom tools take a text instead of arguments: any text, or a text that matches a grammar.
const (
	typeCustom       = "custom"
	typeCustomCall   = "custom_tool_call"
	typeCustomOutput = "custom_tool_call_output"
)

// anyText is the format of a custom tool without a format.
var anyText = json.RawMessage(`{"type":"text"}`)

// decodeCustom reads {"type": "custom", "name": …, "format": …}.
func (q *toolReader) decodeCustom(in *wire.Fields, intro string) tool {
	t := tool{Type: typeCustom, Format: anyText}
	var c generate.Custom
	required(in, "name", &t.Name)
	if in.Has("description") {
		t.Description = &c.Description
		in.String("description", t.Description)
	}
	if format, ok := in.Object("format"); ok {
		raw, _ := in.Raw("format")
		t.Format = slices.Clone(raw)
		decodeFormat(format, &c)
	}
	shown := c
	shown.Name, shown.Description = q.seen(in, t.Name), introduced(intro, c.Description)
	if in.Err() == nil {
		in.FailWith(q.conversation.CustomTool(shown))
	}
	return t
}

// decodeFormat reads {"type": "text"} or {"type": "grammar", "syntax": …, "definition": …}.
func decodeFormat(in *wire.Fields, c *generate.Custom) {
	var kind string
	switch required(in, "type", &kind); kind {
	case "", "text":
	case "grammar":
		required(in, "syntax", &c.Syntax)
		if c.Syntax != "" && c.Syntax != "lark" && c.Syntax != "regex" {
			in.Fail("syntax", "Invalid value for {}: %q; use \"lark\" or \"regex\".", short(c.Syntax))
		}
		required(in, "definition", &c.Definition)
		c.Field = in.Path("definition")
	default:
		in.Fail("type", "Invalid value for {}: %q; use \"text\" or \"grammar\".", short(kind))
	}
}
