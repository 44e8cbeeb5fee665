package toolcall

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/chat"
	"github.com/heftai/heft/internal/golden"
)

// A shape is an assistant's message to be written by a template and read back.
type shape struct {
	name               string
	content, reasoning string
	calls              []Call
}

const toolsJSON = `[
 {"type": "function", "function": {"name": "get_weather", "description": "Weather of a place.", "parameters": {"type": "object", "properties": {
  "city": {"type": "string", "description": "Its name."}, "days": {"type": "integer", "description": "How many."}, "wind": {"type": "boolean", "description": "Also wind."},
  "limit": {"type": "number", "description": "Upper limit."}}, "required": ["city"]}}},
 {"type": "function", "function": {"name": "search-files", "description": "Find files.", "parameters": {"type": "object", "properties": {
  "query": {"type": "string", "description": "What to find."}, "options": {"type": "object", "description": "How.", "additionalProperties": {"type": "string"}, "properties": {}}, "tags": {"type": "array", "description": "Marks.", "items": {"type": "string"}}}, "required": []}}},
 {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}, "required": []}}}
]`

var shapes = []shape{
	{name: "text", content: "It is 4 °C in Zürich {and} [so on] <b>cold</b>.\n\n- a\n- b"},
	{name: "text after thought", reasoning: "Two plus two\n\nis four: {4}, \"quoted\" <i>.", content: "It is 4."},
	{name: "call", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Oslo"}`}}},
	{name: "call after text", content: "Let me look.", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Oslo", "days": 3, "wind": true}`}}},
	{name: "call after thought", reasoning: "I need the weather.", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Oslo", "days": -12, "wind": false}`}}},
	{name: "call after both", reasoning: "I need the weather.", content: "Let me look.", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Oslo"}`}}},
	{name: "no arguments", calls: []Call{{Name: "now", Arguments: `{}`}}},
	{name: "hard text", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Zürich 日本 🌍 \"quoted\" 'single' {brace] \\ back </b> <x> & tab\t, end"}`}}},
	{name: "lines", calls: []Call{{Name: "search-files", Arguments: `{"query": "first {\n  second: \"x\"\n\nthird }"}`}}},
	{name: "text like values", calls: []Call{{Name: "search-files", Arguments: `{"query": "42", "tags": ["true", "null", "1.5", "[]"]}`}}},
	{name: "text like JSON", calls: []Call{{Name: "search-files", Arguments: `{"query": "{\"name\": \"now\", \"arguments\": {}}"}`}}},
	{name: "nested", calls: []Call{{Name: "search-files", Arguments: `{"query": "q", "options": {"deep": {"a": [1, 2.5, -3e-05, {"b": []}], "t": true, "n": null, "e": {}}}, "tags": ["ä", "it's", "b\nc"]}`}}},
	{name: "null", calls: []Call{{Name: "get_weather", Arguments: `{"city": "x", "limit": null}`}}},
	{name: "two calls", content: "Both.", calls: []Call{{Name: "get_weather", Arguments: `{"city": "Oslo"}`}, {Name: "search-files", Arguments: `{"query": "x", "tags": ["a", "b"]}`}}},
	{name: "two calls without text", calls: []Call{{Name: "now", Arguments: `{}`}, {Name: "get_weather", Arguments: `{"city": "Oslo", "days": 2}`}}},
	{name: "three calls after thought", reasoning: "All three.", calls: []Call{{Name: "now", Arguments: `{}`}, {Name: "now", Arguments: `{}`}, {Name: "get_weather", Arguments: `{"city": "P"}`}}},
}

// turnEnds are texts that end an answer: a server stops there.
var turnEnds = []string{
	"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "</s>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "<turn|>",
	"<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<end_of_sentence>", "<SPECIAL_12>", "<sep>", "<|role_end|>",
	"</assistant>", "<|end|>", "<|assistant_end|>", "<|calls|><|begin|>", "[|endofturn|]", "[e~[", "<seed:eos>", "<|observation|>",
}

// thoughtOpenings are ends of prompts that begin reasoning, or skip it, where the
// history of the same template has none.
var thoughtOpenings = []string{
	"<think>\n</think>", "<think></think>", "<think>\n\n</think>\n\n", "<think>\n", "<think>", "</think>",
	"<|START_THINKING|><|END_THINKING|>", "<|channel>thought\n<channel|>", "[THINK]",
}

// TestGoldenToolCalls reads back what every real template writes.
func TestGoldenToolCalls(t *testing.T) {
	n := 0
	for _, file := range golden.Glob(t, "text/templates/files/*.jinja") {
		data, err := golden.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jinja"), func(t *testing.T) {
			n += roundTrips(t, string(data), familyOf(t, string(data)))
		})
	}
	golden.Count(t, "text/templates (tool round trips)", n)
}

// TestOwnTemplates does the same with small templates of our own, one a notation.
func TestOwnTemplates(t *testing.T) {
	files, err := filepath.Glob("testdata/templates/*.jinja")
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		t.Run(name, func(t *testing.T) {
			if got := Detect(string(data)).Name(); got != name {
				t.Errorf("Detect = %s, want %s", got, name)
			}
			if n := roundTrips(t, string(data), Detect(string(data))); n < 2*len(shapes)/3 {
				t.Errorf("%d cases only", n)
			}
		})
	}
}

// roundTrips reads back all shapes that the template writes and returns how many there were.
func roundTrips(t *testing.T, source string, family *Family) int {
	n, calls := 0, 0
	for _, a := range answersOf(t, source, family) {
		n++
		t.Run(a.String(), func(t *testing.T) { calls += check(t, family, a.shape, a.prompt, a.text, a.tools) })
	}
	t.Logf("family %s: %d answers, %d calls", family.Name(), n, calls)
	return n
}

// familyOf returns the notation that a server finds.
func familyOf(t *testing.T, source string) *Family {
	t.Helper()
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return find(template, nil, Detect(source))
}

// A written is an answer as a template writes it.
type written struct {
	shape
	variant
	prompt, text string
	tools        chat.Value
}

func (w written) String() string { return fmt.Sprintf("%s/%+v", w.name, w.variant) }

// answersOf are all shapes that a template can write, under every setting of reasoning.
func answersOf(t *testing.T, source string, family *Family) []written {
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := chat.Decode([]byte(toolsJSON))
	if err != nil {
		t.Fatal(err)
	}
	var out []written
	seen := map[string]bool{}
	for _, s := range shapes {
		done := false
		for _, v := range variants {
			if v.textArguments && done {
				continue
			}
			prompt, text, ok := generate(t, family, template, s, tools, v)
			ok = ok && !python(family, text)
			done = done || ok
			if !ok || seen[prompt+"\x00"+text] {
				continue
			}
			seen[prompt+"\x00"+text] = true
			out = append(out, written{s, v, prompt, text, tools})
		}
	}
	return out
}

// A variant is a way to ask a template for a prompt. Some templates fail at what
// others need.
type variant struct {
	thinking      any  // the switch for reasoning: not given, on or off
	noTools       bool // the prompt does not list the tools
	noContent     bool // an empty content is absent
	textArguments bool // arguments are JSON in a string, if nothing else will do
}

var variants = []variant{{}, {thinking: true}, {thinking: false}, {noTools: true}, {noContent: true}, {textArguments: true}}

// generate returns the prompt of a conversation and the text that the model would add to
// answer with s. It reports false where the template refuses or rewrites the
// conversation.
func generate(t *testing.T, family *Family, template *chat.Template, s shape, tools chat.Value, v variant) (prompt, text string, ok bool) {
	t.Helper()
	user := chat.NewDict("role", "user", "content", "Tell me.")
	r := chat.Request{Messages: []chat.Value{user}, Tools: tools, AddGenerationPrompt: true, Now: time.Unix(1.7e9, 0).UTC()}
	r.SpecialTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
	r.Kwargs = chat.NewDict("functions", toolsJSON, "datetime", "today", "think_render_option", "all")
	if v.thinking != nil {
		r.Kwargs.Set("enable_thinking", v.thinking)
		r.Kwargs.Set("thinking", v.thinking)
	}
	if v.noTools {
		r.Tools = nil
	}
	prompt, err := template.Render(r)
	if err != nil {
		return "", "", false
	}
	r.AddGenerationPrompt = false
	r.Messages = append(r.Messages, s.message(t, family, v))
	full, err := template.Render(r)
	if err != nil {
		return "", "", false
	}
	cut := func(text string) string { return cutTurn(family, text, turnEnd(template, r)) }
	if rest, ok := strings.CutPrefix(full, prompt); ok {
		return prompt, cut(rest), true
	}
	// The history leaves out the reasoning with which the prompt begins the answer:
	// the model would write it all the same.
	for _, opening := range thoughtOpenings {
		short, ok := strings.CutSuffix(prompt, opening)
		if !ok {
			continue
		}
		rest, ok := strings.CutPrefix(full, short)
		if !ok {
			rest, ok = strings.CutPrefix(full, strings.TrimRight(short, "\n"))
		}
		if !ok || strings.HasPrefix(rest, opening) {
			continue
		}
		rest = cut(rest)
		if strings.HasSuffix(strings.TrimSpace(opening), "<think>") && !strings.Contains(rest, "</think>") {
			rest = "\n" + s.reasoning + "\n</think>\n\n" + rest
		}
		return prompt, rest, true
	}
	rest, ok := afterHeader(template, r, prompt, full)
	return prompt, cut(rest), ok
}

// afterHeader returns the answer of a conversation whose prompt ends in a header that the template
// writes between the first message and the answer.
func afterHeader(template *chat.Template, r chat.Request, prompt, full string) (answer string, ok bool) {
	r.Messages = r.Messages[:1]
	base, err := template.Render(r)
	header, ok := strings.CutPrefix(prompt, base)
	if err != nil || !ok || header == "" {
		return "", false
	}
	same := 0
	for same < min(len(base), len(full)) && base[same] == full[same] {
		same++
	}
	if _, rest, ok := strings.Cut(full[max(0, same-len(header)):], header); ok {
		return rest, true
	}
	return "", false
}

// python tells that the template prints an object as Python does where the model
// writes JSON: it wants arguments as text.
func python(family *Family, text string) bool {
	return strings.Contains(text, "{'") && !slices.ContainsFunc(family.spec.forms, func(f form) bool { return f.body == bodyTags })
}

// message is s as a client sends it.
func (s shape) message(t *testing.T, family *Family, v variant) chat.Value {
	t.Helper()
	m := chat.NewDict("role", "assistant", "content", s.content)
	if v.noContent && s.content == "" {
		m.Set("content", nil)
	}
	if s.reasoning != "" {
		m.Set("reasoning_content", s.reasoning)
		m.Set("reasoning", s.reasoning)
		m.Set("thinking", s.reasoning)
	}
	list := chat.NewList()
	for i, c := range s.calls {
		arguments, err := chat.Decode([]byte(c.Arguments))
		if err != nil {
			t.Fatal(err)
		}
		if v.textArguments {
			arguments = c.Arguments
		}
		function := chat.NewDict("name", c.Name, "arguments", arguments)
		list.Items = append(list.Items, chat.NewDict("id", callID(family, c.Name, i), "type", "function", "function", function))
	}
	if len(s.calls) > 0 {
		m.Set("tool_calls", list)
	}
	return m
}

// callID is an id that every template takes, and that tells Kimi's the name.
func callID(family *Family, name string, i int) string {
	if family.spec.ids == kimiID {
		return family.NewCallID(name, i)
	}
	return fmt.Sprintf("Id0Of0Nr%d", i)
}

// turnEnd is the text that the template of r writes after an answer.
func turnEnd(template *chat.Template, r chat.Request) string {
	const answer = "An answer of text."
	r.Messages = []chat.Value{r.Messages[0], chat.NewDict("role", "assistant", "content", answer)}
	full, err := template.Render(r)
	i := strings.LastIndex(full, answer)
	if err != nil || i < 0 {
		return ""
	}
	return strings.TrimSpace(full[i+len(answer):])
}

// cutTurn ends the text where the server would. Texts that are marks inside the
// family's answers are not ends.
func cutTurn(family *Family, text, end string) string {
	marks := family.Markers()
	for _, end := range append([]string{end}, turnEnds...) {
		if end != "" && !slices.Contains(marks, end) {
			text, _, _ = strings.Cut(text, end)
		}
	}
	return text
}

// expected is s without the parts that the template does not write, which cannot be read back.
func expected(family *Family, s shape, prompt, text string, got Message) Message {
	want := Message{}
	switch {
	case opensThought(family, prompt) && !closesThought(family, text):
		// The template writes the answer into the reasoning that its prompt opens.
		return Message{Reasoning: strings.TrimLeft(text, " \n")}
	case strings.Contains(text, "<|channel|>analysis<|message|>"+s.content+"<|end|>") && s.content != "":
		// Harmony's template writes content before a call as analysis.
		want.Reasoning = s.content
	case strings.Contains(text, strings.TrimSpace(s.content)): // else only calls are written
		want.Content = s.content
	}
	if s.reasoning != "" && strings.Contains(text, s.reasoning) { // else reasoning is not written
		want.Reasoning = s.reasoning
	}
	rest := text
	for i, c := range s.calls {
		_, after, ok := strings.Cut(rest, c.Name)
		if !ok { // no calls are written, or only the first
			break
		}
		if !family.Calls() { // in a notation that no family has: they are text
			want.Content += strings.TrimPrefix(strings.TrimSpace(got.Content), want.Content)
			break
		}
		rest = after
		if id := callID(family, c.Name, i); strings.Contains(text, id) {
			c.ID = id
		} else if i < len(got.Calls) {
			c.ID = got.Calls[i].ID // of the template's making, if any
		}
		want.Calls = append(want.Calls, c)
	}
	return want
}

func opensThought(family *Family, prompt string) bool {
	return slices.ContainsFunc(family.thinks, func(t think) bool {
		return strings.HasSuffix(strings.TrimSpace(prompt), t.open)
	})
}

func closesThought(family *Family, text string) bool {
	return slices.ContainsFunc(family.thinks, func(t think) bool {
		return strings.Contains(text, t.close) || slices.ContainsFunc(t.implied, func(m string) bool { return strings.Contains(text, m) })
	})
}

// check reads text whole and in pieces and compares with s. It returns the number
// of calls.
func check(t *testing.T, family *Family, s shape, prompt, text string, tools chat.Value) int {
	t.Helper()
	o := Options{Prompt: prompt, Tools: tools}
	got := family.Parse(text, o)
	if err := differs(family, s, prompt, text, got); err != nil {
		t.Errorf("%v\nfamily %s, prompt …%q, text:\n%s", err, family.Name(), prompt[max(0, len(prompt)-40):], text)
	}
	whole := events(family, o, text)
	for i := range len(text) {
		if pieces := events(family, o, text[:i], text[i:]); !reflect.DeepEqual(pieces, whole) {
			t.Fatalf("cut at %d: %+v\nwhole: %+v", i, pieces, whole)
		}
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(text))))
	for range 8 {
		if pieces := events(family, o, cut(rng, text)...); !reflect.DeepEqual(pieces, whole) {
			t.Fatalf("cut at random: %+v\nwhole: %+v", pieces, whole)
		}
	}
	return len(got.Calls)
}

// differs says where got is not what s says.
func differs(family *Family, s shape, prompt, text string, got Message) error {
	want := expected(family, s, prompt, text, got)
	switch {
	case strings.TrimSpace(got.Content) != strings.TrimSpace(want.Content):
		return fmt.Errorf("content %q, want %q", got.Content, want.Content)
	case got.Reasoning != want.Reasoning:
		return fmt.Errorf("reasoning %q, want %q", got.Reasoning, want.Reasoning)
	case !sameCalls(got.Calls, want.Calls):
		return fmt.Errorf("calls %+v, want %+v", got.Calls, want.Calls)
	}
	return nil
}

// sameCalls compares calls, their arguments as JSON values.
func sameCalls(got, want []Call) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		var a, b any
		if json.Unmarshal([]byte(got[i].Arguments), &a) != nil || json.Unmarshal([]byte(want[i].Arguments), &b) != nil {
			return false
		}
		if got[i].Name != want[i].Name || got[i].ID != want[i].ID || !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

// events are those of text in the pieces given, adjacent pieces of one text joined.
func events(family *Family, o Options, pieces ...string) []Event {
	p := family.NewParser(o)
	var all []Event
	add := func(list []Event) {
		for _, e := range list {
			if n := len(all); n > 0 && e.Text != "" && all[n-1].Kind == e.Kind && all[n-1].Index == e.Index {
				all[n-1].Text += e.Text
				continue
			}
			all = append(all, e)
		}
	}
	for _, piece := range pieces {
		add(p.Feed(piece))
	}
	add(p.Finish())
	return all
}

// cut cuts text at random places, often between every two bytes.
func cut(rng *rand.Rand, text string) []string {
	var pieces []string
	longest := 1 + rng.IntN(20)
	for text != "" {
		n := min(1+rng.IntN(longest), len(text))
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}
