package chat

import (
	"slices"
	"strings"
	"time"
)

// Adapt returns the request with its messages in the form that the template expects. Clients write
// conversations for an API, and templates expect some things in another form:
//
//   - Arguments of tool calls become objects; see [ParseArguments].
//   - A function_call and its result become a tool call and a result; see [modernCalls].
//   - An assistant message without content gets the content "". A message with tool calls does not,
//     if the template only accepts calls without content.
//   - The role developer becomes system, unless the template has its own form for developer. If the
//     template does not accept a system message there, the text joins the system message at the
//     start.
//   - If the template shows only one of several system messages, they become one at the start. If it
//     shows none, their text is added at the start of the user's first message.
//
// Adapt does not change r. The first call renders a few conversations to find out what the template
// does; later calls only walk over the messages.
func (t *Template) Adapt(r Request) Request {
	r.Messages = ParseArguments(r.Messages)
	t.once.Do(func() { t.traits = t.probe(r.SpecialTokens) })
	if !strings.Contains(t.Source(), "function_call") {
		r.Messages = modernCalls(r.Messages)
	}
	r.Messages = t.traits.fillContent(r.Messages)
	var moved []int
	if !t.traits.developer {
		moved = withoutDeveloper(r.Messages)
	}
	switch {
	case t.traits.noSystem:
		r.Messages = systemToUser(joinSystem(r.Messages, indicesOf(r.Messages, "system")))
	case t.traits.oneSystem:
		r.Messages = joinSystem(r.Messages, indicesOf(r.Messages, "system"))
	case !t.traits.laterSystem:
		r.Messages = joinSystem(r.Messages, moved)
	}
	return r
}

// traits are properties in which templates differ.
type traits struct {
	developer    bool // writes the role developer in its own form
	laterSystem  bool // shows system messages that are not the first
	noSystem     bool // accepts system messages and shows none
	oneSystem    bool // accepts several system messages and shows one
	refusesEmpty bool // fails for calls with content "", but not for calls without content
}

// probeTools has a tool for templates that fail without tools.
var probeTools = NewList(NewDict("type", "function", "function", NewDict("name", "probe", "description", "A probe.",
	"parameters", NewDict("type", "object", "properties", NewDict("a", NewDict("type", "string", "description", "A value."))))))

func (t *Template) probe(special map[string]string) traits {
	const first, later = "first-probe", "later-probe"
	user, answer := NewDict("role", "user", "content", "hi"), NewDict("role", "assistant", "content", "hello")
	render := func(messages ...Value) (string, bool) {
		for _, tools := range []Value{nil, probeTools} {
			text, err := t.Render(Request{Messages: messages, Tools: tools, AddGenerationPrompt: true, SpecialTokens: special, Now: time.Unix(0, 0)})
			if err == nil {
				return text, true
			}
		}
		return "", false
	}
	said := func(role string) (string, bool) {
		text, ok := render(NewDict("role", role, "content", later), user)
		return text, ok && strings.Contains(text, later)
	}
	var out traits
	// A template that also writes an unknown role unchanged does not know developer. One that
	// writes developer as system needs no special treatment.
	const unknown = "unheard"
	text, shown := said("developer")
	system, takes := render(NewDict("role", "system", "content", later), user)
	showsSystem := strings.Contains(system, later)
	other, _ := said(unknown)
	out.developer = shown && text != system && text != strings.ReplaceAll(other, unknown, "developer")

	text, ok := render(NewDict("role", "system", "content", first), user, answer, NewDict("role", "system", "content", later), user)
	out.laterSystem = ok && strings.Contains(text, first) && strings.Contains(text, later)
	out.oneSystem = ok && !out.laterSystem && showsSystem
	out.noSystem = takes && !showsSystem

	calls := func() *Dict {
		call := NewDict("id", "abcdefghi", "type", "function", "function", NewDict("name", "probe", "arguments", NewDict("a", "b")))
		return NewDict("role", "assistant", "tool_calls", NewList(call))
	}
	empty := calls()
	empty.Set("content", "")
	if _, ok := render(user, empty); !ok {
		_, out.refusesEmpty = render(user, calls())
	}
	return out
}

// fillContent sets missing contents of the assistant's messages and of tools' results to "". A tool
// may return nothing, and an answer may be a refusal or only reasoning.
func (t traits) fillContent(messages []Value) []Value {
	for i, v := range messages {
		m, ok := v.(*Dict)
		if !ok {
			continue
		}
		calls, _ := m.Get("tool_calls")
		list, _ := calls.(*List)
		called := list != nil && len(list.Items) > 0 || roleOf(m) == "tool"
		content, _ := m.Get("content")
		if content != nil || called && t.refusesEmpty || !called && roleOf(m) != "assistant" {
			continue
		}
		filled := m.Clone()
		filled.Set("content", "")
		messages[i] = filled
	}
	return messages
}

// withoutDeveloper changes messages of the role developer to system messages and returns their
// indices.
func withoutDeveloper(messages []Value) []int {
	found := indicesOf(messages, "developer")
	for _, i := range found {
		system := messages[i].(*Dict).Clone()
		system.Set("role", "system")
		messages[i] = system
	}
	return found
}

// indicesOf returns the indices of the messages of a role.
func indicesOf(messages []Value, role string) (found []int) {
	for i, v := range messages {
		if m, ok := v.(*Dict); ok && roleOf(m) == role {
			found = append(found, i)
		}
	}
	return found
}

// joinSystem moves the texts of the messages at the indices found into one system message at the
// start.
func joinSystem(messages []Value, found []int) []Value {
	first, starts := NewDict("role", "system"), false
	if len(messages) > 0 {
		if m, ok := messages[0].(*Dict); ok && roleOf(m) == "system" {
			first, starts = m.Clone(), true
			found = slices.DeleteFunc(found, func(i int) bool { return i == 0 })
		}
	}
	if len(found) == 0 {
		return messages
	}
	content, _ := first.Get("content")
	for _, i := range found {
		more, _ := messages[i].(*Dict).Get("content")
		content = joinContents(content, more)
	}
	first.Set("content", content)
	for _, i := range slices.Backward(found) {
		messages = slices.Delete(messages, i, i+1)
	}
	if starts {
		messages[0] = first
		return messages
	}
	return slices.Insert(messages, 0, Value(first))
}

// systemToUser moves the text of a system message at the start to the user's first message.
func systemToUser(messages []Value) []Value {
	users := indicesOf(messages, "user")
	if len(users) == 0 || len(indicesOf(messages[:1], "system")) == 0 {
		return messages
	}
	system, _ := messages[0].(*Dict).Get("content")
	user := messages[users[0]].(*Dict).Clone()
	content, _ := user.Get("content")
	user.Set("content", joinContents(system, content))
	messages[users[0]] = user
	return messages[1:]
}

// joinContents joins the contents of two messages. The result is a text, or parts if either has
// parts.
func joinContents(a, b Value) Value {
	if a == nil {
		return b
	}
	first, text := a.(string)
	second, both := b.(string)
	if text && both {
		return first + "\n\n" + second
	}
	joined := &List{}
	for _, v := range []Value{a, b} {
		switch v := v.(type) {
		case string:
			joined.Items = append(joined.Items, NewDict("type", "text", "text", v))
		case *List:
			joined.Items = append(joined.Items, v.Items...)
		}
	}
	return joined
}

func roleOf(m *Dict) string {
	role, _ := m.Get("role")
	s, _ := role.(string)
	return s
}
