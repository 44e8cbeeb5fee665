package toolcall

import (
	"encoding/json"
	"reflect"
	"strings"
)

// A trial is an answer that a notation should read back.
type trial struct {
	content, thought string
	arguments        []string // of the calls
	basic            bool     // a notation that fails it is rejected
}

var trials = []trial{
	{arguments: []string{`{"zqa": "zqvalue"}`}, basic: true},
	{content: probeContent, arguments: []string{`{"zqa": "two words", "zqb": "b"}`}, basic: true},
	{arguments: []string{`{"zqa": "x"}`, `{"zqa": "y", "zqn": 7}`}, basic: true},
	{content: probeContent},
	{content: probeContent, thought: probeThought},
	{thought: probeThought, arguments: []string{`{"zqa": "x"}`}},
	{arguments: []string{`{}`}},
	{arguments: []string{`{"zqa": "Zürich \"q\" 'x' {y] \\ <b> & \t,", "zqn": -12, "zqt": true}`}},
	{arguments: []string{`{"zqa": "a\nb", "zqo": {"d": {"a": [1, 2.5, {"b": []}], "n": null, "t": false}}, "zql": ["ä", "it's", "b\nc"]}`}},
	{arguments: []string{`{"zqa": "42", "zqb": "true"}`, `{}`, `{"zqa": "[1]"}`}},
}

// readBack renders the trials and counts those that f parses correctly. good is 0 if a basic
// trial fails or the template writes none.
func (a *answers) readBack(f *Family) (good, written int) {
	prompt, _ := a.tail(true)
	basic, turns := false, -1 // of an answer of one call
	for _, t := range trials {
		var calls []probeCall
		for i, arguments := range t.arguments {
			calls = append(calls, newProbeCall(i, arguments))
		}
		raw, ok := a.tail(false, a.message(t.content, t.thought, calls...))
		if !ok || !strings.HasPrefix(raw, a.header) {
			continue
		}
		o := Options{Prompt: a.header, Tools: a.tools}
		text := a.cut(raw[len(a.header):])
		n := a.turns(text)
		if turns < 0 {
			turns = n
		}
		if turns == 0 && n > 0 {
			continue // the template splits it into several messages, and an answer is one message
		}
		if rest, ok := strings.CutPrefix(raw, prompt); ok && len(prompt) > len(a.header) {
			o.Prompt, text = prompt, a.cut(rest)
		}
		written++
		switch {
		case t.same(f.Parse(text, o), text, calls, len(f.thinks) > 0):
			good++
			basic = basic || t.basic
		case t.basic:
			return 0, written
		}
	}
	if !basic {
		return 0, written
	}
	return good, written
}

// turns counts the ends of turns in an answer.
func (a *answers) turns(text string) int {
	end := strings.TrimSpace(a.end)
	if end == "" {
		return 0
	}
	return strings.Count(text, end)
}

// same reports whether m has the content, reasoning and calls of t, except for those that the
// template leaves out.
func (t trial) same(m Message, text string, calls []probeCall, thinks bool) bool {
	content := ""
	if strings.Contains(text, probeContent) {
		content = t.content
	}
	if m.Content == "" && strings.TrimSpace(m.Reasoning) == content {
		// In such a template an answer without reasoning is written into the reasoning that the
		// prompt opens.
		content = ""
	}
	if strings.TrimSpace(m.Content) != content {
		return false
	}
	if thinks && strings.Contains(text, probeThought) && strings.TrimSpace(m.Reasoning) != t.thought {
		return false
	}
	rest := text
	for _, c := range calls {
		_, after, ok := strings.Cut(rest, c.name)
		if !ok { // the template writes one call only
			break
		}
		rest = after
		if len(m.Calls) == 0 || m.Calls[0].Name != c.name || !sameJSON(m.Calls[0].Arguments, c.arguments) {
			return false
		}
		m.Calls = m.Calls[1:]
	}
	return len(m.Calls) == 0
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
