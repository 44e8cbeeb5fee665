package toolcall

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/chat"
)

// notation writes events in short: text and reasoning quoted, calls as
// #0 name(id) {arguments} end(id).
func notation(list []Event) string {
	var b strings.Builder
	for _, e := range list {
		switch e.Kind {
		case Content:
			fmt.Fprintf(&b, " %q", e.Text)
		case Reasoning:
			fmt.Fprintf(&b, " think %q", e.Text)
		case CallStart:
			fmt.Fprintf(&b, " #%d %s(%s)", e.Index, e.Name, e.ID)
		case CallArguments:
			b.WriteString(" " + e.Text)
		case CallEnd:
			fmt.Fprintf(&b, " end(%s)", e.ID)
			if e.Broken {
				b.WriteString(" broken")
			}
		}
	}
	return strings.TrimSpace(b.String())
}

func testTools(t testing.TB) chat.Value {
	t.Helper()
	tools, err := chat.Decode([]byte(`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
		"s": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
		"u": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "e": {"enum": ["1", "2"]}, "sn": {"type": ["string", "null"]}}}}},
		{"name": "g"}, "odd", {"function": 1}]`))
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func byName(t testing.TB, name string) *Family {
	t.Helper()
	f, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParser(t *testing.T) {
	tools := testTools(t)
	for _, test := range parserCases() {
		t.Run(test.name, func(t *testing.T) {
			family, o := byName(t, test.family), Options{Prompt: test.prompt, Tools: tools}
			whole := events(family, o, test.text)
			if got := notation(whole); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			bytes := strings.Split(test.text, "")
			if pieces := events(family, o, bytes...); !reflect.DeepEqual(pieces, whole) {
				t.Errorf("by characters: %s\nwhole: %s", notation(pieces), notation(whole))
			}
		})
	}
}

func TestWithoutToolsCallsAreText(t *testing.T) {
	text := `A <tool_call>{"name": "f"}</tool_call>`
	for _, tools := range []chat.Value{nil, chat.NewList(), "odd"} {
		if got := notation(events(byName(t, "hermes"), Options{Tools: tools}, text)); got != fmt.Sprintf("%q", text) {
			t.Errorf("tools %v: %s", tools, got)
		}
	}
}

func TestContinuedReasoning(t *testing.T) {
	o := Options{Prompt: "<think>\nFirst I add", InReasoning: true}
	if got := notation(events(byName(t, "hermes"), o, " the numbers</think>4")); got != `think "the numbers" "4"` {
		t.Error(got)
	}
}

// TestParseGivesBrokenCallsAsText: with the whole text at hand nothing is lost or
// half told.
func TestParseGivesBrokenCallsAsText(t *testing.T) {
	text := `A <tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call><tool_call>{"name": "f", "arguments": {"s": "x`
	got := byName(t, "hermes").Parse(text, Options{Tools: testTools(t)})
	want := Message{Content: `A<tool_call>{"name": "f", "arguments": {"s": "x`, Calls: []Call{{Name: "f", Arguments: `{"n": 1}`}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestArgumentsStream: arguments come out as they come in, not at their end.
func TestArgumentsStream(t *testing.T) {
	for family, pieces := range map[string][]string{
		"hermes":     {`<tool_call>{"name": "f", "arguments": {"s": "`, "abc", "def"},
		"qwen-coder": {"<tool_call><function=f><parameter=s>\n", "abc", "def"},
		"gemma4":     {`<|tool_call>call:f{s:<|"|>`, "abc", "def"},
		"lfm2":       {`<|tool_call_start|>[f(s="`, "abc", "def"},
	} {
		p := byName(t, family).NewParser(Options{Tools: testTools(t)})
		for i, piece := range pieces {
			got := notation(p.Feed(piece))
			if i == 0 && !strings.HasPrefix(got, "#0 f()") || i > 0 && !strings.HasSuffix(got, piece) {
				t.Errorf("%s: %q gives %s", family, piece, got)
			}
		}
	}
}

// TestMemoryIsBounded: text that never becomes a call is released as content.
func TestMemoryIsBounded(t *testing.T) {
	for family, text := range map[string]string{
		"hermes":      `<tool_call>{"arguments": {"a": "`,
		"deepseek-v3": "<｜tool▁call▁begin｜>",
		"glm":         "<tool_call>",
		"qwen-coder":  "<function=f><parameter=",
		"lfm2":        "<|tool_call_start|>[f(a=",
		"gemma4":      "<|tool_call>call:f{",
	} {
		p := byName(t, family).NewParser(Options{Tools: testTools(t)})
		p.Feed(text)
		got := 0
		for range 200 {
			for _, e := range p.Feed(strings.Repeat("x", 1000)) {
				got += len(e.Text)
			}
			if held := cap(p.raw) + cap(p.out) + cap(p.word) + len(p.pending) + cap(p.tags.text) + cap(p.tags.word); held > 8*maxHeld {
				t.Fatalf("%s: %d bytes are held", family, held)
			}
		}
		if got < 130_000 {
			t.Errorf("%s: %d bytes of 200000 came out", family, got)
		}
	}
	p := byName(t, "hermes").NewParser(Options{Tools: testTools(t)})
	p.Feed(`<tool_call>{"name": "f", "arguments": {"a": ` + strings.Repeat("[", 200_000))
	if len(p.object.value.stack) > maxDepth {
		t.Errorf("depth %d", len(p.object.value.stack))
	}
}

// TestHostileTexts: what begins like calls again and again takes no more time than
// other text of its length.
func TestHostileTexts(t *testing.T) {
	tools := testTools(t)
	for _, name := range Names() {
		family := byName(t, name)
		marks := family.Markers()
		for i, mark := range marks {
			unit := mark + marks[(i+1)%len(marks)][:1] + `{"name": "f`
			text := strings.Repeat(unit, (128<<10)/len(unit))
			got := family.Parse(text, Options{Tools: tools})
			if len(got.Content)+len(got.Reasoning) == 0 && len(got.Calls) == 0 {
				t.Errorf("%s: nothing comes of %q…", name, unit)
			}
		}
	}
}

func TestBigValueIsText(t *testing.T) {
	big := "[" + strings.Repeat("1, ", 40_000) + "1]"
	got := byName(t, "qwen-coder").Parse("<function=h><parameter=a>"+big+"</parameter></function>", Options{Tools: testTools(t)})
	if want := `{"a": "` + big + `"}`; len(got.Calls) != 1 || got.Calls[0].Arguments != want {
		t.Errorf("%.80v", got)
	}
}

func TestNumbers(t *testing.T) {
	for word, want := range map[string]string{
		"0": "0", "-0": "-0", "1.5e-3": "1.5e-3", "+3": "3", "1.": "1.0", ".5": "0.5", "-.5e2": "-0.5e2", "1.e5": "1.0e5", "1_0": "10",
		"01": "", "-": "", "": "", "1e": "", "nan": "", "inf": "", "0x10": "", "--1": "", "1.2.3": "", "True": "true", "Nope": "",
	} {
		got, ok := convert([]byte(word), pythonFlavor)
		if !ok {
			got = nil
		}
		if string(got) != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestDetect(t *testing.T) {
	for template, want := range map[string]string{
		"{{ messages }}":                       "plain",
		"<tool_call>{}":                        "hermes",
		"<tool_call><function=x><parameter=y>": "qwen-coder",
		"<tool_call><arg_key><arg_value>":      "glm",
		"[TOOL_CALLS]":                         "mistral",
	} {
		if got := Detect(template).Name(); got != want {
			t.Errorf("%s: %s, want %s", template, got, want)
		}
	}
	if got := Detect("nothing", "<s>", "<|tool_call_start|>").Name(); got != "lfm2" {
		t.Errorf("by tokens: %s", got)
	}
	if got := notation(events(Detect("<tool_call>"), Options{}, "<think>A</think>")); got != `"<think>A</think>"` {
		t.Errorf("a template without reasoning: %s", got)
	}
	if _, err := ByName("unknown"); err == nil || !strings.HasPrefix(err.Error(), "toolcall: ") {
		t.Errorf("ByName: %v", err)
	}
	if len(Names()) != len(specs()) {
		t.Errorf("%d names of %d families", len(Names()), len(specs()))
	}
}

// TestParserNamesOfVLLMExist: parser names of vLLM select the families that Heft has for them.
func TestParserNamesOfVLLMExist(t *testing.T) {
	for name, own := range aliases {
		if f, err := ByName(name); err != nil || f.Name() != own {
			t.Errorf("%s: not the family %s: %v", name, own, err)
		}
		if own != name && slices.Contains(Names(), name) {
			t.Errorf("%s is a family's own name", name)
		}
	}
	for _, name := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder", "deepseek_r1", "qwen3", "granite", "openai_gptoss"} {
		if _, err := ByName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestVisible(t *testing.T) {
	f := byName(t, "harmony")
	for token, want := range map[string]bool{"<|channel|>": true, "<|message|>": true, "<|call|>": true, "<|endoftext|>": false, "": false} {
		if f.Visible(token) != want {
			t.Errorf("%q: %v", token, !want)
		}
	}
}

func TestNewCallID(t *testing.T) {
	if id := byName(t, "mistral").NewCallID("f", 0); len(id) != 9 {
		t.Errorf("mistral: %s", id)
	}
	if id := byName(t, "kimi-k2").NewCallID("f", 2); id != "functions.f:2" {
		t.Errorf("kimi: %s", id)
	}
	f := byName(t, "hermes")
	if a, b := f.NewCallID("f", 0), f.NewCallID("f", 0); a == b || !strings.HasPrefix(a, "call_") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestWithReasoning(t *testing.T) {
	hermes, err := ByName("hermes")
	if err != nil {
		t.Fatal(err)
	}
	mistral, err := ByName("mistral")
	if err != nil {
		t.Fatal(err)
	}
	tools := chat.NewList(chat.NewDict("type", "function", "function", chat.NewDict("name", "f")))
	const call = `<tool_call>{"name": "f", "arguments": {}}</tool_call>`
	for _, c := range []struct {
		family             *Family
		text               string
		reasoning, content string
	}{
		{hermes, "<think>a</think>b", "a", "b"},
		{hermes.WithReasoning(nil), "<think>a</think>b", "", "<think>a</think>b"},
		{hermes.WithReasoning(mistral), "[THINK]a[/THINK]b", "a", "b"},
	} {
		m := c.family.Parse(c.text+call, Options{Tools: tools})
		if m.Reasoning != c.reasoning || m.Content != c.content || len(m.Calls) != 1 {
			t.Errorf("%q is read as %+v", c.text, m)
		}
	}
	none := hermes.WithReasoning(nil)
	if !hermes.Active(nil) || none.Active(nil) || !none.Active(tools) {
		t.Error("a family is active where it has nothing to look for, or the other way round")
	}
	if none.Visible("<think>") {
		t.Error("a marker that is not looked for is visible")
	}
}
