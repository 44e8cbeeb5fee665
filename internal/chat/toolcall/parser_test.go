package toolcall

import (
	"fmt"
	"reflect"
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
	tests := []struct{ name, family, prompt, text, want string }{
		{"plain", "plain", "", "Hello, <b>world</b>.\n", `"Hello, <b>world</b>.\n"`},
		{"space is kept without markers", "hermes", "", "  a \n b \n", `"  a \n b \n"`},
		{"a marker's beginning is text", "hermes", "", "a <tool", `"a <tool"`},
		{"almost a marker", "hermes", "", "a <tool_cat> <<tool_call", `"a <tool_cat> <<tool_call"`},

		{"reasoning", "hermes", "", "<think>\nA\n</think>\n\nB", `think "A" "B"`},
		{"empty reasoning", "hermes", "", "<think>\n\n</think>\n\nB", `"B"`},
		{"the prompt opens reasoning", "hermes", "…<think>\n", "A\n</think>\n\nB", `think "A" "B"`},
		{"the prompt has closed it", "hermes", "…<think>\n\n</think>\n\n", "B </think>", `"B </think>"`},
		{"reasoning is cut off", "hermes", "", "<think>\nA </thi", `think "A </thi"`},
		{"markers of calls in reasoning", "hermes", "", `<think>A <tool_call>{"name": "f"}</think>B`, `think "A <tool_call>{\"name\": \"f\"}" "B"`},
		{"text, reasoning, text", "hermes", "", "A <think>B</think> C", `"A" think "B" "C"`},
		{"much white space before a marker", "hermes", "", "A" + strings.Repeat(" ", 40) + "<think>B", `"A        " think "B"`},
		{"a colon ends the prompt", "hermes", "assistant:", " A", `"A"`},

		{"a call", "hermes", "", "A\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n</tool_call>\nB", `"A" #0 f() {"s": "x"} end() "B"`},
		{"white space in arguments", "hermes", "", `<tool_call>{"name":"f","arguments": { "s" : [ 1 , 2 ] } }</tool_call>`, `#0 f() { "s" : [ 1 , 2 ] } end()`},
		{"no arguments", "hermes", "", `<tool_call>{"name": "f"}</tool_call>`, `#0 f() {} end()`},
		{"null for arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": null}</tool_call>`, `#0 f() {} end()`},
		{"arguments before the name", "hermes", "", `<tool_call>{"arguments": {"n": 1}, "name": "f"}</tool_call>`, `#0 f() {"n": 1} end()`},
		{"arguments in a string", "hermes", "", `<tool_call>{"name": "f", "arguments": "{\"s\": \"\\\"\\u00e9\\ud83c\\udf0d\"}"}</tool_call>`, `#0 f() {"s": "\"\u00e9\ud83c\udf0d"} end()`},
		{"escapes of the outer string", "hermes", "", `<tool_call>{"name": "f", "arguments": "{\u0022s\u0022: \"\u00e9\ud83c\udf0d\"}"}</tool_call>`, `#0 f() {"s": "é🌍"} end()`},
		{"empty string of arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": ""}</tool_call>`, `#0 f() {} end()`},
		{"in a function", "hermes", "", `<tool_call>{"id": "i1", "type": "function", "function": {"name": "f", "arguments": {"n": 1}}}</tool_call>`, `#0 f(i1) {"n": 1} end(i1)`},
		{"parameters", "hermes", "", `<tool_call>{"name": "f", "parameters": {}}</tool_call>`, `#0 f() {} end()`},
		{"other keys", "hermes", "", `<tool_call>{"why": ["a", {"}": 1}], "name": "f", "x": -1.5e3, "arguments": {"n": 1}, "y": null, "z": "</tool_call>"}</tool_call>`, `#0 f() {"n": 1} end()`},
		{"an escaped name", "hermes", "", `<tool_call>{"name": "f\u00e9", "arguments": {}}</tool_call>`, `#0 fé() {} end()`},
		{"a raw line break in a string", "hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\nb\tc\"}}</tool_call>", `#0 f() {"s": "a\nb\tc"} end()`},
		{"a close in a string", "hermes", "", `<tool_call>{"name": "f", "arguments": {"s": "</tool_call>}"}}</tool_call>`, `#0 f() {"s": "</tool_call>}"} end()`},
		{"two calls", "hermes", "", `<tool_call>{"name": "f"}</tool_call> <tool_call>{"name": "g"}</tool_call>`, `#0 f() {} end() #1 g() {} end()`},
		{"two in one", "hermes", "", "<tool_call>[{\"name\": \"f\"},\n{\"name\": \"g\"}]</tool_call>", `#0 f() {} end() #1 g() {} end()`},
		{"no close", "hermes", "", `<tool_call>{"name": "f"} and so on`, `#0 f() {} end() "and so on"`},
		{"the close is cut off", "hermes", "", `<tool_call>{"name": "f"}</tool_`, `#0 f() {} end()`},
		{"another close", "hermes", "", `<tool_call>{"name": "f"}</tool_calls>`, `#0 f() {} end() "</tool_calls>"`},

		{"no call at all", "hermes", "", "a <tool_call>oops</tool_call>", `"a <tool_call>oops</tool_call>"`},
		{"no name", "hermes", "", `<tool_call>{"arguments": {}}</tool_call>`, `"<tool_call>{\"arguments\": {}}</tool_call>"`},
		{"a bad name", "hermes", "", `<tool_call>{"name": "no name"}`, `"<tool_call>{\"name\": \"no name\"}"`},
		{"arguments are a list", "hermes", "", `<tool_call>{"name": "f", "arguments": [1]}`, `"<tool_call>{\"name\": \"f\", \"arguments\": [1]}"`},
		{"cut off before the arguments", "hermes", "", `<tool_call>{"name": "f", "argum`, `"<tool_call>{\"name\": \"f\", \"argum"`},
		{"an empty section", "hermes", "", "a <tool_call> </tool_call> b", `"a <tool_call> </tool_call> b"`},
		{"a section in a section", "hermes", "", `<tool_call><tool_call>{"name": "f"}</tool_call>`, `"<tool_call>" #0 f() {} end()`},
		{"a marker that a parameter's begins like", "glm", "", `<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><tool_call>g</tool_call>`, `#0 f() {"n": 1 end() broken #1 g() {} end()`},
		{"cut off in the arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": {"s": "ab`, `#0 f() {"s": "ab end() broken`},
		{"cut off after the arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": {"s": "ab"}`, `#0 f() {"s": "ab"} end()`},
		{"broken arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": {"s" "ab"}}</tool_call>`, `#0 f() {"s"  end() broken "\"ab\"}}</tool_call>"`},
		{"a broken number", "hermes", "", `<tool_call>{"name": "f", "arguments": {"n": 01}}`, `#0 f() {"n": 01 end() broken "}}"`},
		{"a trailing comma", "hermes", "", `<tool_call>{"name": "f", "arguments": {"n": 1,}}`, `#0 f() {"n": 1, end() broken "}}"`},
		{"a bad escape", "hermes", "", `<tool_call>{"name": "f", "arguments": {"s": "\x"}}`, `#0 f() {"s": "\ end() broken "x\"}}"`},
		{"nonsense after the arguments", "hermes", "", `<tool_call>{"name": "f", "arguments": {"n": 1} what`, `#0 f() {"n": 1} end() "what"`},

		{"mistral, a list with ids", "mistral", "", `[TOOL_CALLS][{"name": "f", "arguments": {"n": 1}, "id": "abcdefgh1"}, {"name": "g", "arguments": {}, "id": "abcdefgh2"}]`, `#0 f() {"n": 1} end(abcdefgh1) #1 g() {} end(abcdefgh2)`},
		{"mistral, names", "mistral", "", `A[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g[CALL_ID]abcdefgh2[ARGS]{}`, `"A" #0 f() {"n": 1} end() #1 g(abcdefgh2) {} end(abcdefgh2)`},
		{"mistral, a name alone", "mistral", "", `[TOOL_CALLS]f{"n": 1}`, `#0 f() {"n": 1} end()`},
		{"mistral, reasoning", "mistral", "", `[THINK]A[/THINK]B`, `think "A" "B"`},

		{"llama", "llama", "", `{"name": "f", "parameters": {"n": 1}}`, `#0 f() {"n": 1} end()`},
		{"llama, type first", "llama", "", ` {"type": "function", "name": "f", "parameters": {"n": 1}}`, `#0 f() {"n": 1} end()`},
		{"llama, several", "llama", "", `<|python_tag|>{"name": "f", "parameters": {"n": 1}}; {"name": "g", "parameters": {}}`, `#0 f() {"n": 1} end() #1 g() {} end()`},
		{"llama, JSON that is the answer", "llama", "", `{"name": "f", "age": 3}`, `"{\"name\": \"f\", \"age\": 3}"`},
		{"llama, JSON with a name alone", "llama", "", `{"name": "f"}`, `"{\"name\": \"f\"}"`},
		{"llama, a tool it was not shown", "llama", "", `{"name": "h", "parameters": {}}`, `"{\"name\": \"h\", \"parameters\": {}}"`},
		{"llama, JSON after text", "llama", "", `See {"name": "f", "parameters": {}}`, `"See {\"name\": \"f\", \"parameters\": {}}"`},
		{"llama, built-in tool", "llama", "", `<|python_tag|>brave_search.call(query="a \"b\"")`, `#0 brave_search() {"query": "a \"b\""} end()`},
		{"llama, code", "llama", "", `<|python_tag|>print(1 + 1)`, `"<|python_tag|>print(1 + 1)"`},

		{"pythonic", "llama-pythonic", "", `[f(s='it\'s "x"', n=1_000, b=True, l=[1, 2.5, .5, None,], o={'a': (1, 2), "b": {}}), g()]`,
			`#0 f() {"s": "it's \"x\"", "n": 1000, "b": true, "l": [1, 2.5, 0.5, null], "o": {"a": [1, 2], "b": {}}} end() #1 g() {} end()`},
		{"pythonic, escapes", "llama-pythonic", "", `[f(s="\x41\u00e9\U0001F30D\n\d\\")]`, `#0 f() {"s": "Aé🌍\n\\d\\"} end()`},
		{"pythonic, a list that is the answer", "llama-pythonic", "", "[link](url) and [1]", `"[link](url) and [1]"`},
		{"pythonic, a call of no tool", "llama-pythonic", "", "[h(a=1)]", `"[h(a=1)]"`},
		{"pythonic, positional", "llama-pythonic", "", "[f(1)]", `"[f(1)]"`},
		{"pythonic, broken", "llama-pythonic", "", `[f(s="a", n=1 2)]`, `#0 f() {"s": "a", "n": 1 end() broken "2)]"`},
		{"lfm2", "lfm2", "", `<|tool_call_start|>[f(n=1), g(a="b")]<|tool_call_end|>Done.`, `#0 f() {"n": 1} end() #1 g() {"a": "b"} end() "Done."`},
		{"olmo3", "olmo3", "", "<function_calls>\nf(n=1)\ng()\n</function_calls>", `#0 f() {"n": 1} end() #1 g() {} end()`},

		{"deepseek", "deepseek-v3", "", "A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>B",
			`"A" #0 f() {"n": 1} end() #1 g() {} end() "B"`},
		{"deepseek, no section", "deepseek-v3", "", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜>", `#0 f() {} end()`},
		{"deepseek, open reasoning", "deepseek-v3.1", "<think>", "A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `think "A" #0 f() {} end()`},
		{"dsml", "deepseek-dsml", "", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
			`#0 f() {"s": "1", "n": 1} end()`},

		{"harmony", "harmony", "<|start|>assistant", `<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>commentary<|message|>B<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"n": 1}<|call|>`, `think "A" "B" #0 f() {"n": 1} end()`},
		{"harmony, recipient first", "harmony", "<|start|>assistant", ` to=functions.f<|channel|>commentary json<|message|>{"n": 1}`, `#0 f() {"n": 1} end()`},
		{"harmony, final", "harmony", "<|start|>assistant", `<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>`, `think "A" "B"`},
		{"harmony, no header", "harmony", "<|start|>assistant", `B`, `"B"`},

		{"qwen-coder", "qwen-coder", "", "A\n<tool_call>\n<function=f>\n<parameter=s>\n 1\n\n</parameter>\n<parameter=n>\n1\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{'a': None}\n</parameter>\n</function>\n</tool_call>",
			`"A" #0 f() {"s": " 1\n", "n": 1, "b": true, "o": {"a": null}} end()`},
		{"qwen-coder, no section", "qwen-coder", "", "<function=f>\n<parameter=s>\na</param\n</parameter>\n</function>\n</tool_call>", `#0 f() {"s": "a</param"} end()`},
		{"qwen-coder, types", "qwen-coder", "", "<tool_call><function=f><parameter=u>1</parameter><parameter=e>1</parameter><parameter=sn>null</parameter><parameter=n>many</parameter><parameter=x>true</parameter><parameter=y>None of it</parameter><parameter=z></parameter></function></tool_call>",
			`#0 f() {"u": 1, "e": "1", "sn": null, "n": "many", "x": true, "y": "None of it", "z": ""} end()`},
		{"qwen-coder, text before a parameter", "qwen-coder", "", "<tool_call><function=f>what", `"<tool_call><function=f>what"`},
		{"qwen-coder, cut off", "qwen-coder", "", "<tool_call><function=f><parameter=s>ab</para", `#0 f() {"s": "ab</para end() broken`},
		{"glm", "glm", "", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a\n</arg_value>\n<arg_key>l</arg_key><arg_value>[1]</arg_value></tool_call><tool_call>g</tool_call>", `#0 f() {"s": "a\n", "l": [1]} end() #1 g() {} end()`},
		{"glm, prose", "glm", "", "<tool_call>is a marker.\nYes", `"<tool_call>is a marker.\nYes"`},
		{"minicpm", "minicpm", "", `<function name="f"><param name="s"><![CDATA[a <b> ]] c]]></param><param name="n">1</param></function>`, `#0 f() {"s": "a <b> ]] c", "n": 1} end()`},
		{"gemma", "gemma4", "", `<|channel>thought` + "\nA" + `<channel|>B<|tool_call>call:f{s:<|"|>a "b" <| c<|"|>,n:1,o:{k:[<|"|>x<|"|>,None]}}<tool_call|><|tool_call>call:g{}<tool_call|>`, `think "A" "B" #0 f() {"s": "a \"b\" <| c", "n": 1, "o": {"k": ["x", null]}} end() #1 g() {} end()`},
		{"kimi", "kimi-k2", "", `A<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{"n": 1}<|tool_call_end|><|tool_calls_section_end|>`, `"A" #0 f(functions.f:3) {"n": 1} end(functions.f:3)`},
		{"kimi, no arguments", "kimi-k2", "", `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|><|tool_call_end|>`, `#0 f(functions.f:0) {} end(functions.f:0)`},
		{"command-r", "command-r", "", "Plan.\nAction: ```json\n[{\"tool_name\": \"f\", \"parameters\": {\"n\": 1}}]\n```", `"Plan." #0 f() {"n": 1} end()`},
		{"command-r, prose", "command-r", "", "Action: none.", `"Action: none."`},
		{"functionary, text and call", "functionary-v3.2", "…>>>", "all\nA>>>f\n{\"n\": 1}>>>g\n{}", `"A" #0 f() {"n": 1} end() #1 g() {} end()`},
		{"apertus", "apertus", "", `<|tools_prefix|>[{"f": {"n": 1}}, {"g": {}}]<|tools_suffix|>`, `#0 f() {"n": 1} end() #1 g() {} end()`},
		{"functools in prose", "firefunction", "", "import functools\nx", `"import functools\nx"`},
	}
	tools := testTools(t)
	for _, test := range tests {
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

// TestMemoryIsBounded: what never becomes a call is let go.
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
	if _, err := ByName("nobody"); err == nil || !strings.HasPrefix(err.Error(), "toolcall: ") {
		t.Errorf("ByName: %v", err)
	}
	if len(Names()) != len(specs()) {
		t.Errorf("%d names of %d families", len(Names()), len(specs()))
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
