package toolcall

import (
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/layout"
)

// A Notation is how a template writes calls, as text that a model can be made to write:
//
//	Before NAME Infix ARGUMENTS { Between NAME Infix ARGUMENTS } After
//
// With Last the name and the arguments change places. With Again, Again and NAME follow ARGUMENTS.
type Notation struct {
	Before, Infix, After string
	// Between is "" if an answer has at most one call.
	Between string
	// ID is a placeholder in the texts above for the id of a call, of nine letters and digits.
	ID string
	// Index is a placeholder in the texts above for the number of a call, from 0 on; "" if there is
	// none.
	Index string
	// Arguments describe the arguments; nil if they are a JSON object.
	Arguments *Arguments
	// Last means that the name follows the arguments.
	Last bool
	// Again is the text between the arguments and the repeated name, if calls end with their name.
	Again string
}

// callIndex is the placeholder for the number of a call in notations of the table.
const callIndex = "\x00"

// Notation learns how the templates write calls, and checks that f reads them back. If they write
// no calls or only one, it uses the table's notation, if there is one. It returns nil if the
// notation is unknown.
func (f *Family) Notation(templates *chat.Set) *Notation {
	if templates == nil || !f.Calls() {
		return nil
	}
	t, err := templates.Template(chat.NewList())
	if err != nil {
		return nil
	}
	var learned *Notation
	for _, s := range settings {
		p := newProber(t, templates.SpecialTokens)
		p.setting = s
		a, ok := newAnswers(p)
		if !ok {
			continue
		}
		if learned = a.notation(f); learned == nil {
			learned = a.argumentNotation(f)
		}
		if learned != nil {
			break
		}
	}
	if learned != nil && (learned.Between != "" || f.spec.written == nil) {
		return learned
	}
	if written := f.writtenNotation(newProber(t, templates.SpecialTokens)); written != nil {
		return written
	}
	return learned
}

// notation finds the texts around the name and the arguments of one call and of two.
func (a *answers) notation(f *Family) *Notation {
	first, second := newProbeCall(0, `{"zqa": "zqvalue"}`), newProbeCall(1, `{"zqa": "zqvalue"}`)
	text, ok := a.answer("", "", first)
	if !ok {
		return nil
	}
	n := &Notation{ID: a.id(first)}
	before, infix, after, ok := n.split(text, first.name)
	for _, other := range []Notation{{Last: true}, {Arguments: &Arguments{layout.Object{Kind: layout.Text}}}, {Last: true, Arguments: &Arguments{layout.Object{Kind: layout.Text}}}} {
		if ok {
			break
		}
		n.Last, n.Arguments = other.Last, other.Arguments
		before, infix, after, ok = n.split(text, first.name)
	}
	if !ok {
		return nil
	}
	if !n.Last && !a.namedIDs {
		n.Again, after = cutAgain(after, first.name)
	}
	n.Before, n.Infix, n.After = a.beforeCalls(f, before), infix, strings.TrimRight(after, " \t\r\n")
	if a.namedIDs {
		n.ID = ""
	}
	if text, ok := a.answer("", "", first, second); ok {
		n.Between = a.between(n, text, first, second)
	}
	return a.checked(f, n)
}

// between returns the text between two calls, or "" if the second is not written like the first.
func (a *answers) between(n *Notation, text string, first, second probeCall) string {
	_, infix, rest, ok := n.split(text, first.name)
	if ok && n.Again != "" {
		rest, ok = strings.CutPrefix(rest, n.Again+first.name)
	}
	if !ok || infix != n.Infix {
		return ""
	}
	between, infix, after, ok := n.split(rest, second.name)
	if ok && n.Again != "" {
		after, ok = strings.CutPrefix(after, n.Again+second.name)
	}
	if !ok || strings.TrimRight(after, " \t\r\n") != strings.ReplaceAll(n.After, a.id(first), a.id(second)) {
		return ""
	}
	if strings.ReplaceAll(infix, a.id(second), a.id(first)) != n.Infix {
		return ""
	}
	return strings.ReplaceAll(between, a.id(second), a.id(first))
}

// split splits a text around the name of a call and its arguments, in n's order.
func (n *Notation) split(text, name string) (before, infix, after string, ok bool) {
	if n.Last {
		if before, rest, ok := n.cutArguments(text); ok && !strings.Contains(before, name) {
			infix, after, ok = strings.Cut(rest, name)
			return before, infix, after, ok
		}
		return "", "", "", false
	}
	before, rest, ok := strings.Cut(text, name)
	if !ok {
		return "", "", "", false
	}
	infix, after, ok = n.cutArguments(rest)
	return before, infix, after, ok && !strings.Contains(infix, name)
}

// cutArguments splits a text around the arguments of a probe: an object, or the text within the
// quotes of a string.
func (n *Notation) cutArguments(text string) (before, after string, ok bool) {
	quoted := n.Arguments != nil
	for i := range len(text) {
		if text[i] != '{' && !quoted || text[i] != '"' && quoted {
			continue
		}
		length, v := decodeAt(text[i:])
		if _, isText := v.(string); isText != quoted || !isArguments(v) {
			continue
		}
		if quoted {
			return text[:i+1], text[i+length-1:], true
		}
		return text[:i], text[i+length:], true
	}
	return "", "", false
}

// reads reports whether f reads calls in the notation n, with arguments and, if arguments are not
// JSON, without.
func (a *answers) reads(f *Family, n *Notation) bool {
	return a.readsArguments(f, n, `{"zqa":"x","zqn":7}`) && (n.Arguments == nil || a.readsArguments(f, n, `{}`))
}

func (a *answers) readsArguments(f *Family, n *Notation, arguments string) bool {
	written := arguments
	if n.Arguments != nil {
		written = n.Arguments.write(arguments != `{}`)
	}
	text := n.call(n.Before, probeNames[0], written, 0)
	want := 1
	if n.Between != "" {
		text += n.call(n.Between, probeNames[1], written, 1)
		want = 2
	}
	o := Options{Prompt: a.header, Tools: a.tools}
	m := f.Parse(f.Frame(o).Inside+text+n.After, o)
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

// call appends a call to a text.
func (n *Notation) call(before, name, arguments string, index int) string {
	if n.Last {
		return n.numbered(before, index) + arguments + n.numbered(n.Infix, index) + name
	}
	text := n.numbered(before+name+n.Infix, index) + arguments
	if n.Again != "" {
		text += n.Again + name
	}
	return text
}

// numbered sets the number of a call in a text of n.
func (n *Notation) numbered(text string, index int) string {
	if n.Index == "" {
		return text
	}
	return strings.ReplaceAll(text, n.Index, strconv.Itoa(index))
}
