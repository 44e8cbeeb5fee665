package toolcall

import (
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// A Notation is how a template writes calls whose arguments are JSON objects, as text that a model
// can be made to write:
//
//	Before NAME Infix ARGUMENTS { Between NAME Infix ARGUMENTS } After
type Notation struct {
	Before, Infix, After string
	// Between is "" if an answer has one call only.
	Between string
	// ID stands in the texts above for the id of a call, of nine letters and digits.
	ID string
}

// Notation learns how the templates write calls, and checks that f reads them back. It returns nil if
// arguments are not JSON objects after the name, or if the template writes no calls.
func (f *Family) Notation(templates *chat.Set) *Notation {
	if templates == nil || !f.Calls() {
		return nil
	}
	t, err := templates.Template(chat.NewList())
	if err != nil {
		return nil
	}
	for _, s := range settings {
		p := newProber(t, templates.SpecialTokens)
		p.setting = s
		a, ok := newAnswers(p)
		if !ok {
			continue
		}
		if n := a.notation(f); n != nil {
			return n
		}
	}
	return nil
}

// notation finds the texts around the name and the arguments of one call and of two.
func (a *answers) notation(f *Family) *Notation {
	first, second := newProbeCall(0, `{"zqa": "zqvalue"}`), newProbeCall(1, `{"zqa": "zqvalue"}`)
	text, ok := a.answer("", "", first)
	if !ok {
		return nil
	}
	before, infix, after, ok := splitCall(text, first.name)
	if !ok {
		return nil
	}
	for _, t := range f.thinks { // an empty thought is not the call's
		if i := strings.LastIndex(before, t.close); i >= 0 {
			before = before[i+len(t.close):]
		}
	}
	n := &Notation{Before: strings.TrimLeft(before, " \t\r\n"), Infix: infix, After: strings.TrimRight(after, " \t\r\n"), ID: a.id(first)}
	if n.Before == "" && before != "" {
		n.Before = before
	}
	if strings.HasPrefix(before, " ") && strings.HasPrefix(n.Before, "to=") {
		n.Before = " " + n.Before // after a header
	}
	if a.namedIDs {
		n.ID = ""
	}
	if text, ok := a.answer("", "", first, second); ok {
		n.Between = a.between(n, text, first, second)
	}
	if !a.reads(f, n) {
		n.Between = ""
		if !a.reads(f, n) {
			return nil
		}
	}
	return n
}

// between is the text between two calls; "" if the second is not written like the first.
func (a *answers) between(n *Notation, text string, first, second probeCall) string {
	_, infix, rest, ok := splitCall(text, first.name)
	if !ok || infix != n.Infix {
		return ""
	}
	between, infix, after, ok := splitCall(rest, second.name)
	if !ok || strings.TrimRight(after, " \t\r\n") != strings.ReplaceAll(n.After, a.id(first), a.id(second)) {
		return ""
	}
	if strings.ReplaceAll(infix, a.id(second), a.id(first)) != n.Infix {
		return ""
	}
	return strings.ReplaceAll(between, a.id(second), a.id(first))
}

// splitCall cuts a text around the name of a call and its arguments.
func splitCall(text, name string) (before, infix, after string, ok bool) {
	before, rest, ok := strings.Cut(text, name)
	for i := 0; ok && i < len(rest); i++ {
		if rest[i] != '{' {
			continue
		}
		n, v := decodeAt(rest[i:])
		if m, isObject := v.(map[string]any); isObject && m["zqa"] == "zqvalue" {
			return before, rest[:i], rest[i+n:], !strings.Contains(rest[:i], name)
		}
	}
	return "", "", "", false
}

// reads reports whether f reads calls that are written so.
func (a *answers) reads(f *Family, n *Notation) bool {
	arguments := `{"zqa":"x","zqn":7}`
	text := n.Before + probeNames[0] + n.Infix + arguments
	want := 1
	if n.Between != "" {
		text += n.Between + probeNames[1] + n.Infix + arguments
		want = 2
	}
	m := f.Parse(text+n.After, Options{Prompt: a.header, Tools: a.tools})
	if len(m.Calls) != want || strings.TrimSpace(m.Content) != "" {
		return false
	}
	for i, c := range m.Calls {
		if c.Name != probeNames[i] || !sameJSON(c.Arguments, arguments) {
			return false
		}
	}
	return true
}
