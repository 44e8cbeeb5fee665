package openai

import (
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/chat"
)

// isCustom reports whether d is a custom tool, or a call or a choice of one. A custom tool takes a
// text instead of arguments.
func isCustom(d *chat.Dict) bool {
	kind, _ := d.Get("type")
	return kind == typeCustom
}

// decodeCustom reads {"type": "custom", "custom": {"name": …, "description": …, "format": …}}.
func decodeCustom(f *wire.Fields, at string, d *chat.Dict, c *generate.Conversation) {
	at, in, ok := namedObject(f, at, d, typeCustom)
	if !ok {
		return
	}
	optionalText(f, at, in, "description")
	t := generate.Custom{Name: textOf(in, "name"), Description: textOf(in, "description")}
	if v, _ := in.Get("format"); v != nil {
		if format, ok := settings.Object(f, at+".format", v); ok {
			decodeFormat(f, at+".format", format, &t)
		}
	}
	if f.Err() == nil {
		f.FailWith(c.CustomTool(t))
	}
}

// decodeFormat reads {"type": "text"} or {"type": "grammar", "grammar": {"syntax": …, "definition":
// …}}. As in the Responses API, syntax and definition may also be in the format itself.
func decodeFormat(f *wire.Fields, at string, format *chat.Dict, t *generate.Custom) {
	switch kind, _ := format.Get("type"); kind {
	case "text":
		return
	case "grammar":
	default:
		f.Fail(at+".type", "Invalid value for '%s.type': expected \"text\" or \"grammar\".", at)
		return
	}
	if v, _ := format.Get("grammar"); v != nil {
		at += ".grammar"
		var ok bool
		if format, ok = settings.Object(f, at, v); !ok {
			return
		}
	}
	requiredText(f, at, format, "syntax")
	requiredText(f, at, format, "definition")
	t.Syntax, t.Definition, t.Field = textOf(format, "syntax"), textOf(format, "definition"), at+".definition"
	if t.Syntax != "lark" && t.Syntax != "regex" {
		f.Fail(at+".syntax", "Invalid value for '%s.syntax': expected \"lark\" or \"regex\".", at)
	}
}

// customCallOf converts a call of a custom tool,
// {"type": "custom", "custom": {"name": …, "input": …}}, to a call of the function that the model
// sees.
func customCallOf(f *wire.Fields, at string, call *chat.Dict) *chat.Dict {
	at, in, ok := namedObject(f, at, call, typeCustom)
	if !ok {
		return call
	}
	optionalText(f, at, in, "input")
	return chat.NewDict("id", textOf(call, "id"), "type", typeFunction,
		"function", chat.NewDict("name", textOf(in, "name"), "arguments", generate.CustomArguments(textOf(in, "input"))))
}

func textOf(d *chat.Dict, name string) string {
	v, _ := d.Get(name)
	s, _ := v.(string)
	return s
}
