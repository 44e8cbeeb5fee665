package toolcall

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/chat"
)

func setOf(t testing.TB, source string) *chat.Set {
	t.Helper()
	set, err := chat.Load(fstest.MapFS{"chat_template.jinja": {Data: []byte(source)}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func source(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFind: a family of the table that reads its template back is taken, else what the
// template teaches; a template that neither reads is reported as unread.
func TestFind(t *testing.T) {
	hermes := source(t, "templates/hermes")
	const sentences = `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}
do {{ c.function.name }} please{% for k, v in c.function.arguments.items() %}, {{ k }} is {{ v }}{% endfor %}{% endfor %}{% endfor %}`
	for _, c := range []struct {
		name, source, tokens string
		family               string
		calls, unread        bool
	}{
		{"a known notation", hermes, "", "hermes", true, false},
		{"a notation of its own", source(t, "unseen/arrow"), "", learnedName, true, false},
		{"known markers, another notation", strings.NewReplacer(`'{"name": "' ~ f.name ~ '", "arguments": '`, `f.name ~ '=>'`, ` ~ '}'`, "").Replace(hermes), "", learnedName, true, false},
		{"sentences", sentences, "", "plain", false, true},
		{"no calls", `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}`, "", "plain", false, false},
		{"no calls, but tools", `{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}`, "", "plain", false, true},
		{"a special token alone", `{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}`, "<|tool_call_start|>", "lfm2", true, false},
		{"a template that always fails", `{{ raise_exception("no") }}`, "", "plain", false, false},
		{"a template that does not parse", `{% if %}`, "", "plain", false, false},
		{"a template without end", `{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}`, "", "plain", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Find(setOf(t, c.source), c.tokens)
			if f.Name() != c.family || f.Calls() != c.calls || f.Unread() != c.unread {
				t.Errorf("family %s, calls %v, unread %v; want %s, %v, %v", f.Name(), f.Calls(), f.Unread(), c.family, c.calls, c.unread)
			}
		})
	}
	if f := Find(nil, "<|tool_call_start|>"); f.Name() != "lfm2" {
		t.Errorf("without templates: %s", f.Name())
	}
}

// TestLearnedThoughts: reasoning between markers that no family has is read, in templates
// with and without calls.
func TestLearnedThoughts(t *testing.T) {
	for name, thought := range map[string]string{
		"tags": `<|ponder|>%s<|/ponder|>`, "lines": "<musing>\n%s\n</musing>\n\n", "brackets": "[REASON]%s[/REASON]", "an end alone": "<|mind|>%s<|speak|>",
	} {
		t.Run(name, func(t *testing.T) {
			open, after, _ := strings.Cut(thought, "%s")
			template := fmt.Sprintf(`{%% for m in messages %%}<|im_start|>{{ m.role }}
{%% if m.reasoning_content %%}{{ %q ~ m.reasoning_content ~ %q }}{%% endif %%}{{ m.content }}<|im_end|>
{%% endfor %%}{%% if add_generation_prompt %%}<|im_start|>assistant
{%% endif %%}`, open, after)
			m := Find(setOf(t, template)).Parse(fmt.Sprintf(thought, "I add\n\nthem.")+"It is 4.", Options{})
			if m.Reasoning != "I add\n\nthem." || m.Content != "It is 4." {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestRepeatedThoughtMarkers: a model that writes again the marker with which the prompt
// ends means nothing by it.
func TestRepeatedThoughtMarkers(t *testing.T) {
	for _, c := range []struct{ prompt, text, want string }{
		{"<think>\n", "<think>\nA</think>B", `think "A" "B"`},
		{"<think>\n", "\n<think></think>B", `"B"`},
		{"<think></think>", "</think>B", `"B"`},
		{"", "</think>\n\nB", `"B"`},
		{"", "B</think>C", `"B</think>C"`},
		{"<think>", "A<think>B</think>C", `think "A<think>B" "C"`},
	} {
		f := byName(t, "hermes")
		if got := notation(events(f, Options{Prompt: c.prompt}, c.text)); got != c.want {
			t.Errorf("%q after %q: %s, want %s", c.text, c.prompt, got, c.want)
		}
		if got := notation(events(f, Options{Prompt: c.prompt}, strings.Split(c.text, "")...)); got != c.want {
			t.Errorf("%q after %q by characters: %s, want %s", c.text, c.prompt, got, c.want)
		}
	}
}

// TestFindOfDamagedTemplates: no template makes learning fail, and the notation that is learned
// parses any text.
func TestFindOfDamagedTemplates(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, pattern := range []string{"testdata/templates/*.jinja", "testdata/unseen/*.jinja"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			whole := source(t, strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), "testdata/"), ".jinja"))
			for range 8 {
				lines := strings.SplitAfter(whole, "\n")
				i, k := rng.IntN(len(lines)), rng.IntN(len(lines))
				switch rng.IntN(3) {
				case 0:
					lines[i] = ""
				case 1:
					lines[i], lines[k] = lines[k], lines[i]
				default:
					at := rng.IntN(len(lines[i]) + 1)
					lines[i] = lines[i][:at] + lines[i][min(at+1+rng.IntN(6), len(lines[i])):]
				}
				family := Find(setOf(t, strings.ToValidUTF8(strings.Join(lines, ""), "")))
				text := strings.Join(family.Markers(), `{"name": "f", "arguments": {"a": 1}}`)
				checkEvents(t, family, events(family, Options{Tools: testTools(t)}, text))
			}
		}
	}
}

// BenchmarkFind measures the cost at the start of a server.
func BenchmarkFind(b *testing.B) {
	for _, name := range []string{"templates/hermes", "unseen/arrow"} {
		set := setOf(b, source(b, name))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Find(set)
			}
		})
	}
}
