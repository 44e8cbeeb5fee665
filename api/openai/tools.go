package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/text"
)

// checkCalls checks the calls in a message of the model. It converts calls of custom tools to calls
// of functions.
func checkCalls(f *wire.Fields, at string, message *chat.Dict) {
	calls, _ := message.Get("tool_calls")
	if calls == nil {
		return
	}
	at += ".tool_calls"
	list, ok := calls.(*chat.List)
	if !ok {
		f.Fail(at, "Invalid type for '%s': expected a list.", at)
		return
	}
	for i, v := range list.Items {
		at := fmt.Sprintf("%s[%d]", at, i)
		if call, ok := settings.Object(f, at, v); ok {
			list.Items[i] = readCall(f, at, call)
		}
	}
}

// readCall checks a call. It returns the call in the form that the template gets.
func readCall(f *wire.Fields, at string, call *chat.Dict) *chat.Dict {
	if optionalText(f, at, call, "id"); isCustom(call) {
		return customCallOf(f, at, call)
	}
	checkCall(f, at, call)
	return call
}

func checkCall(f *wire.Fields, at string, call *chat.Dict) {
	at, fn, ok := checkFunction(f, at, call)
	if !ok {
		return
	}
	switch arguments, _ := fn.Get("arguments"); arguments.(type) {
	case nil, string, *chat.Dict:
	default:
		f.Fail(at+".arguments", "Invalid type for '%s.arguments': expected a string.", at)
	}
}

// decodeTools reads the tools and whether the model may call them.
func decodeTools(f *wire.Fields, c *generate.Conversation) {
	decodeToolList(f, c)
	decodeToolChoice(f, c)
}

func decodeToolList(f *wire.Fields, c *generate.Conversation) {
	f.Like("tools", []openaijson.ChatTool{})
	tools, ok := settings.Value(f, "tools")
	if !ok {
		return
	}
	list, ok := tools.(*chat.List)
	if !ok {
		f.Fail("tools", "Invalid type for 'tools': expected a list.")
		return
	}
	for i, v := range list.Items {
		at := fmt.Sprintf("tools[%d]", i)
		if d, ok := v.(*chat.Dict); ok && isCustom(d) {
			if decodeCustom(f, at, d, c); f.Err() != nil {
				return
			}
			continue
		}
		name, strict := checkTool(f, at, v)
		if f.Err() != nil {
			return
		}
		if strict {
			if c.Strict == nil {
				c.Strict = map[string]bool{}
			}
			c.Strict[name] = true
		}
		tool, err := text.ToolOf(v)
		if err != nil {
			f.Fail("tools", "Invalid value for 'tools': %v", err)
		}
		c.Tools = append(c.Tools, tool)
	}
}

// decodeToolChoice reads "auto", "none", "required", a function, or a list of allowed tools.
func decodeToolChoice(f *wire.Fields, c *generate.Conversation) {
	f.Like("tool_choice", new(string), map[string]any{})
	raw, ok := f.Raw("tool_choice")
	if !ok {
		return
	}
	var choice string
	if json.Unmarshal(raw, &choice) == nil {
		switch choice {
		case "auto":
		case "none":
			c.ToolChoice = generate.ToolsNone
		case "required":
			c.ToolChoice = generate.ToolsRequired
		default:
			f.Fail("tool_choice", "Invalid value for {}: expected \"auto\", \"none\", \"required\" or a function.")
		}
		return
	}
	o, ok := f.Object("tool_choice")
	if !ok {
		return
	}
	var kind string
	switch o.String("type", &kind); kind {
	case typeFunction, typeCustom:
		decodeNamed(o, c)
	case "allowed_tools":
		decodeAllowed(o, c)
	default:
		o.Fail("type", "Invalid value for {}: expected \"function\", \"custom\" or \"allowed_tools\".")
	}
}

// decodeNamed reads {"type": "function", "function": {"name": …}}, or the same form for a custom
// tool.
func decodeNamed(o *wire.Fields, c *generate.Conversation) {
	c.Tool = functionName(o)
	c.ToolChoice = generate.ToolsRequired
}

// functionName reads the name of {"type": "function", "function": {"name": …}}, or of the same form
// with custom. In the requests of some clients the name is in the object itself. If there is no
// name, it keeps an error in o.
func functionName(o *wire.Fields) (name string) {
	at := o
	for _, kind := range []string{typeFunction, typeCustom} {
		if !o.Has(kind) {
			continue
		}
		in, ok := o.Object(kind)
		if !ok {
			return ""
		}
		at = in
	}
	if at.String("name", &name); name == "" {
		at.Fail("name", "Missing required parameter: {}.")
	}
	return name
}

// decodeAllowed reads {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}. Only
// the allowed tools are shown to the model.
func decodeAllowed(o *wire.Fields, c *generate.Conversation) {
	in, ok := o.Object("allowed_tools")
	if !ok {
		o.Fail("allowed_tools", "Missing required parameter: {}.")
		return
	}
	var mode string
	switch in.String("mode", &mode); mode {
	case "auto":
	case "required":
		c.ToolChoice = generate.ToolsRequired
	default:
		in.Fail("mode", "Invalid value for {}: expected \"auto\" or \"required\".")
	}
	allowed := map[string]bool{}
	in.Objects("tools", "a list of tools", func(_ int, tool *wire.Fields) bool {
		name := functionName(tool)
		if name != "" && !slices.ContainsFunc(c.Tools, func(t text.Tool) bool { return t.Name == name }) {
			tool.Fail("function", "Invalid value for {}: 'tools' has no function %.100q.", name)
		}
		allowed[name] = true
		return true
	})
	if len(allowed) == 0 {
		in.Fail("tools", "Missing required parameter: {}.")
	}
	c.Tools = slices.DeleteFunc(c.Tools, func(t text.Tool) bool { return !allowed[t.Name] })
}

// checkTool checks a tool. It returns the function's name and whether its arguments are strict.
func checkTool(f *wire.Fields, at string, v chat.Value) (name string, strict bool) {
	tool, ok := settings.Object(f, at, v)
	if !ok {
		return "", false
	}
	requiredText(f, at, tool, "type")
	at, fn, ok := checkFunction(f, at, tool)
	if !ok {
		return "", false
	}
	optionalText(f, at, fn, "description")
	if parameters, _ := fn.Get("parameters"); parameters != nil {
		settings.Object(f, at+".parameters", parameters)
	}
	flag, _ := fn.Get("strict")
	if strict, ok = flag.(bool); !ok && flag != nil {
		f.Fail(at+".strict", "Invalid type for '%s.strict': expected a boolean.", at)
	}
	text, _ := fn.Get("name")
	if s, ok := text.(string); ok {
		name = s
	}
	return name, strict
}

// checkFunction checks that a tool, or a call of a tool, is of a function with a name. It returns
// the function and its path.
func checkFunction(f *wire.Fields, at string, d *chat.Dict) (string, *chat.Dict, bool) {
	if kind, _ := d.Get("type"); kind != nil && kind != typeFunction {
		f.Fail(at+".type", "Invalid value for '%s.type': expected \"function\" or \"custom\".", at)
	}
	return namedObject(f, at, d, typeFunction)
}

// namedObject returns the object of d under a key, and its path. The object must have a name.
func namedObject(f *wire.Fields, at string, d *chat.Dict, key string) (string, *chat.Dict, bool) {
	at += "." + key
	v, _ := d.Get(key)
	if v == nil {
		f.Fail(at, "Missing required parameter: '%s'.", at)
		return at, nil, false
	}
	fn, ok := settings.Object(f, at, v)
	if ok {
		requiredText(f, at, fn, "name")
	}
	return at, fn, ok
}

// requiredText checks that d has a non-empty text under name.
func requiredText(f *wire.Fields, at string, d *chat.Dict, name string) {
	switch v, _ := d.Get(name); v {
	case nil:
		f.Fail(at+"."+name, "Missing required parameter: '%s.%s'.", at, name)
	case "":
		f.Fail(at+"."+name, "Invalid value for '%s.%s': it is empty.", at, name)
	default:
		optionalText(f, at, d, name)
	}
}

// optionalText checks that the value of d under name, if there is one, is a text.
func optionalText(f *wire.Fields, at string, d *chat.Dict, name string) {
	if v, _ := d.Get(name); v != nil && !isString(v) {
		f.Fail(at+"."+name, "Invalid type for '%s.%s': expected a string.", at, name)
	}
}
