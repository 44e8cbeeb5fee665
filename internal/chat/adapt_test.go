package chat

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// strict has the shape of templates that need the content of every assistant message.
const strict = `{% for m in messages %}{% if m.role == "assistant" %}A{% set c = m.content.split("</think>")[-1] %}:{{ c }}
{%- for t in m.tool_calls or [] %}<call>{{ t.function | tojson }}</call>{% endfor %}|
{%- elif m.role in ["user", "tool"] or m.role == "system" and loop.first %}{{ m.role }}:{{ m.content }}|{% endif %}{% endfor %}`

const loop = `[{"role":"user","content":"Weather?"},
 {"role":"assistant",CONTENT"tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Oslo\"}"}}]},
 {"role":"tool","tool_call_id":"abcdefghi","name":"weather","content":"4"}]`

// adapted renders a client's conversation.
func adapted(t *testing.T, template *Template, messages string) (string, error) {
	t.Helper()
	r := Request{Messages: messagesOf(t, messages), AddGenerationPrompt: true, SpecialTokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
	r.Tools = probeTools
	before := NewList(r.Messages...)
	r2 := template.Adapt(r)
	if !sameJSON(t, before, messagesOf(t, messages)) {
		t.Errorf("Adapt changed the messages of its request: %s", messages)
	}
	return template.Render(r2)
}

func sameJSON(t *testing.T, a *List, b []Value) bool {
	t.Helper()
	print := mustParse(t, "{{ messages | tojson }}")
	one, err1 := print.Render(Request{Messages: a.Items})
	two, err2 := print.Render(Request{Messages: b})
	return err1 == nil && err2 == nil && one == two
}

// TestToolCallsWithoutContent: a message that calls tools renders alike whether its content
// is "", null or absent. A template that reads the content fails otherwise, and the second
// leg of every tool loop is a 400.
func TestToolCallsWithoutContent(t *testing.T) {
	check := func(t *testing.T, template *Template) {
		t.Helper()
		want, err := adapted(t, template, strings.Replace(loop, "CONTENT", `"content":"",`, 1))
		if err != nil {
			t.Fatalf("the template takes no calls: %v", err)
		}
		for _, content := range []string{"", `"content":null,`} {
			if got, err := adapted(t, template, strings.Replace(loop, "CONTENT", content, 1)); err != nil || got != want {
				t.Errorf("content %q: %q, %v, want %q", content, got, err, want)
			}
		}
	}
	template := mustParse(t, strict)
	check(t, template)
	want := `user:Weather?|A:<call>{"name": "weather", "arguments": {"city": "Oslo"}}</call>|tool:4|`
	if got, err := adapted(t, template, strings.Replace(loop, "CONTENT", "", 1)); got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	t.Run("a template that refuses an empty content", func(t *testing.T) {
		refuses := mustParse(t, strings.Replace(`{% for m in messages %}{% if m.content == "" %}{{ raise_exception("empty") }}{% endif %}`+strict+`{% endfor %}`, "m.content.split", "(m.content or '').split", 1))
		if _, err := adapted(t, refuses, strings.Replace(loop, "CONTENT", `"content":null,`, 1)); err != nil {
			t.Error(err)
		}
	})
}

// TestAToolThatReturnsNothingRenders: "content": null of a tool's message was a 400 with templates
// that ask for its length or trim it.
func TestAToolThatReturnsNothingRenders(t *testing.T) {
	template := mustParse(t, `{% for m in messages %}{{ m.role }}:{{ m.content.strip() }}|{% endfor %}`)
	for _, content := range []string{`"content": null`, `"name": "weather"`} {
		got, err := adapted(t, template, `[{"role": "user", "content": "Hi"}, {"role": "tool", `+content+`}]`)
		if want := "user:Hi|tool:|"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", content, got, err, want)
		}
	}
}

// TestGoldenToolCallsWithoutContent is the same with real templates.
func TestGoldenToolCallsWithoutContent(t *testing.T) {
	n := 0
	for _, file := range golden.Glob(t, "text/templates/files/*.jinja") {
		data, err := golden.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		template := mustParse(t, string(data))
		want, err := adapted(t, template, strings.Replace(loop, "CONTENT", `"content":"",`, 1))
		if err != nil {
			continue // takes no calls, or needs more than a client sends
		}
		n++
		for _, content := range []string{"", `"content":null,`} {
			if got, err := adapted(t, template, strings.Replace(loop, "CONTENT", content, 1)); err != nil || got != want {
				t.Errorf("%s: content %q: %q, %v, want %q", filepath.Base(file), content, got, err, want)
			}
		}
	}
	golden.Count(t, "text/templates (calls without content)", n)
}

// TestDeveloperRole: the role developer becomes system in templates that do not know it, and
// its text does not disappear.
func TestDeveloperRole(t *testing.T) {
	const (
		generic  = `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`
		knows    = `{% for m in messages %}{% if m.role == "developer" %}[dev]{% else %}[{{ m.role }}]{% endif %}{{ m.content }}{% endfor %}`
		onlyTop  = `{% for m in messages %}{% if m.role == "system" %}{% if loop.first %}[system]{{ m.content }}{% endif %}{% elif m.role == "user" %}[user]{{ m.content }}{% endif %}{% endfor %}`
		raises   = `{% for m in messages %}{% if m.role == "system" and not loop.first or m.role not in ["system", "user", "assistant"] %}{{ raise_exception("order") }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}`
		first    = `[{"role":"developer","content":"D"},{"role":"user","content":"U"}]`
		afterSys = `[{"role":"system","content":"S"},{"role":"developer","content":"D"},{"role":"user","content":"U"}]`
		late     = `[{"role":"user","content":"U"},{"role":"developer","content":"D"},{"role":"user","content":"V"}]`
		parts    = `[{"role":"system","content":[{"type":"text","text":"S"}]},{"role":"developer","content":"D"},{"role":"user","content":"U"}]`
	)
	for _, c := range []struct{ template, messages, want string }{
		{knows, first, "[dev]D[user]U"},
		{knows, late, "[user]U[dev]D[user]V"},
		{generic, first, "[system]D[user]U"},
		{generic, afterSys, "[system]S[system]D[user]U"},
		{generic, late, "[user]U[system]D[user]V"},
		{onlyTop, first, "[system]D[user]U"},
		{onlyTop, afterSys, "[system]S\n\nD[user]U"},
		{onlyTop, late, "[system]D[user]U[user]V"},
		{onlyTop, parts, "[system][{'type': 'text', 'text': 'S'}, {'type': 'text', 'text': 'D'}][user]U"},
		{raises, first, "[system]D[user]U"},
		{raises, afterSys, "[system]S\n\nD[user]U"},
		{raises, late, "[system]D[user]U[user]V"},
	} {
		if got, err := adapted(t, mustParse(t, c.template), c.messages); got != c.want {
			t.Errorf("%s\nof %s: %q, %v, want %q", c.template, c.messages, got, err, c.want)
		}
	}
}

// TestLaterSystemMessages: a system message that is not the first, or not the last, disappeared silently where the
// template shows one of them.
func TestLaterSystemMessages(t *testing.T) {
	const (
		shows = `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`
		first = `{% if messages[0].role == "system" %}[system]{{ messages[0].content }}{% endif %}{% for m in messages %}{% if m.role != "system" %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}`
		last  = `{% set ns = namespace(s="") %}{% for m in messages %}{% if m.role == "system" %}{% set ns.s = m.content %}{% endif %}{% endfor %}[system]{{ ns.s }}{% for m in messages %}{% if m.role != "system" %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}`
		fails = `{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("system first") }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}`
		none  = `{% for m in messages %}{% if m.role != "system" %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}`

		both  = `[{"role":"system","content":"S"},{"role":"user","content":"U"},{"role":"system","content":"T"},{"role":"user","content":"V"}]`
		later = `[{"role":"user","content":"U"},{"role":"system","content":"T"},{"role":"user","content":"V"}]`
		empty = `[{"role":"system"},{"role":"user","content":"U"},{"role":"system","content":"T"},{"role":"user","content":"V"}]`
	)
	for _, c := range []struct{ name, template, messages, want string }{
		{"shown", shows, both, "[system]S[user]U[system]T[user]V"},
		{"the first only", first, both, "[system]S\n\nT[user]U[user]V"},
		{"the first only, later", first, later, "[system]T[user]U[user]V"},
		{"the first only, without content", first, empty, "[system]T[user]U[user]V"},
		{"the last only", last, both, "[system]S\n\nT[user]U[user]V"},
		{"none", none, both, "[user]S\n\nT\n\nU[user]V"},
		{"none, no system", none, `[{"role":"user","content":"U"}]`, "[user]U"},
	} {
		if got, err := adapted(t, mustParse(t, c.template), c.messages); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	if _, err := adapted(t, mustParse(t, fails), both); err == nil {
		t.Error("the template's own error is lost")
	}
}

// TestGoldenDeveloperRole: no real template that shows a system message loses the text of a
// developer, and none leaves out a later system message without an error.
func TestGoldenDeveloperRole(t *testing.T) {
	n := 0
	conversation := func(roles ...string) string {
		var list []string
		for i, role := range roles {
			list = append(list, `{"role":"`+role+`","content":"words-`+string(rune('a'+i))+`"}`)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	for _, file := range golden.Glob(t, "text/templates/files/*.jinja") {
		data, err := golden.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		template := mustParse(t, string(data))
		if text, err := adapted(t, template, conversation("system", "user")); err != nil || !strings.Contains(text, "words-a") {
			continue // shows no system message
		}
		n++
		for _, roles := range [][]string{{"developer", "user"}, {"system", "developer", "user"}, {"user", "assistant", "developer", "user"}} {
			text, err := adapted(t, template, conversation(roles...))
			for i := range roles {
				if word := "words-" + string(rune('a'+i)); err != nil || !strings.Contains(text, word) {
					t.Errorf("%s: %v: %s is lost in %q, %v", filepath.Base(file), roles, word, text, err)
				}
			}
		}
		for _, roles := range [][]string{{"system", "user", "assistant", "system", "user"}, {"user", "assistant", "system", "user"}} {
			text, err := adapted(t, template, conversation(roles...))
			for i := range roles {
				if word := "words-" + string(rune('a'+i)); err == nil && !strings.Contains(text, word) { // many fail, and say why
					t.Errorf("%s: %v: %s is lost in %q", filepath.Base(file), roles, word, text)
				}
			}
		}
	}
	golden.Count(t, "text/templates (developer)", n)
}
