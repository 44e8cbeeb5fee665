package chat

import "strings"

// ParseArguments returns the messages with the arguments of tool calls as objects. Clients send
// them as JSON in a string. An empty string, null and missing arguments become an empty object. A
// string that is not a JSON object stays a string for the template. ParseArguments does not change
// the given messages.
func ParseArguments(messages []Value) []Value {
	out := make([]Value, len(messages))
	for i, v := range messages {
		out[i] = v
		m, ok := v.(*Dict)
		if !ok {
			continue
		}
		changed := m.Clone()
		if calls, ok := m.Get("tool_calls"); ok {
			if list, ok := calls.(*List); ok {
				parsed := &List{Items: make([]Value, len(list.Items))}
				for k, call := range list.Items {
					parsed.Items[k] = parseCall(call)
				}
				changed.Set("tool_calls", parsed)
			}
		}
		if fn, ok := m.Get("function_call"); ok {
			changed.Set("function_call", parseFunction(fn))
		}
		out[i] = changed
	}
	return out
}

func parseCall(call Value) Value {
	d, ok := call.(*Dict)
	if !ok {
		return call
	}
	fn, ok := d.Get("function")
	if !ok {
		return parseFunction(call) // a call without the wrapper
	}
	out := d.Clone()
	out.Set("function", parseFunction(fn))
	return out
}

func parseFunction(fn Value) Value {
	d, ok := fn.(*Dict)
	if !ok {
		return fn
	}
	arguments, _ := d.Get("arguments")
	s, ok := arguments.(string)
	if name, _ := d.Get("name"); !ok && (arguments != nil || name == nil) {
		return fn
	}
	parsed := &Dict{}
	if strings.TrimSpace(s) != "" {
		v, err := Decode([]byte(s))
		if err != nil {
			return fn
		}
		if parsed, ok = v.(*Dict); !ok {
			return fn
		}
	}
	out := d.Clone()
	out.Set("arguments", parsed)
	return out
}
