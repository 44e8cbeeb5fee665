package chat

import (
	"fmt"
	"slices"
	"strings"
)

// modernCalls converts OpenAI's deprecated function calls to tool calls, which templates support:
// function_call of an assistant's message, and the role function of its result. It does not change
// the given messages.
func modernCalls(messages []Value) []Value {
	messages = slices.Clone(messages)
	id := ""
	for i, v := range messages {
		m, ok := v.(*Dict)
		if !ok {
			continue
		}
		call, _ := m.Get("function_call")
		_, tools := m.Get("tool_calls")
		switch fn, _ := call.(*Dict); {
		case fn != nil && !tools:
			id = fmt.Sprintf("call%05d", i) // nine letters and digits, as some templates require
			m = without(m, "function_call")
			m.Set("tool_calls", NewList(NewDict("id", id, "type", "function", "function", fn)))
			messages[i] = m
		case roleOf(m) == "function":
			m = m.Clone()
			m.Set("role", "tool")
			m.Set("tool_call_id", id)
			messages[i] = m
		}
	}
	return messages
}

// without returns a copy of m without a key.
func without(m *Dict, key string) *Dict {
	out := NewDict()
	for k, v := range m.All() {
		if k != key {
			out.Set(k, v)
		}
	}
	return out
}

// apiRoles are the roles that clients of APIs use. The template alone decides what it does with
// them.
var apiRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// mostRoles is the maximum number of roles that Unshown checks.
const mostRoles = 8

// Unshown returns a role of r's messages that is none of apiRoles and that the template does not
// show: the content of its first message is missing in the prompt. It returns "" if there is none,
// or if the conversation cannot be rendered.
func (t *Template) Unshown(r Request) string {
	var roles []string
	probe := func(role string) string { return "probe of the role " + role + "." }
	r.Messages = slices.Clone(r.Messages)
	for i, v := range r.Messages {
		m, ok := v.(*Dict)
		if !ok || slices.Contains(apiRoles, roleOf(m)) || slices.Contains(roles, roleOf(m)) {
			continue
		}
		roles = append(roles, roleOf(m))
		m = m.Clone()
		m.Set("content", probe(roleOf(m)))
		r.Messages[i] = m
		if len(roles) == mostRoles {
			break
		}
	}
	if len(roles) == 0 {
		return ""
	}
	prompt, err := t.Render(r)
	if err != nil {
		return ""
	}
	for _, role := range roles {
		if !strings.Contains(prompt, probe(role)) {
			return role
		}
	}
	return ""
}
