package toolcall

import (
	"slices"
	"strings"
)

// A parserCase is a text and the events that the parser reads from it.
type parserCase struct{ name, family, prompt, text, want string }

func parserCases() []parserCase {
	return slices.Concat(textCases(), objectCases(), damagedCases(), headCases(), tagCases())
}

// textCases are about plain text and reasoning.
func textCases() []parserCase {
	return []parserCase{
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
	}
}

// objectCases are about calls that are JSON objects.
func objectCases() []parserCase {
	return []parserCase{
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
	}
}

// damagedCases are texts that are not a call, or half of one.
func damagedCases() []parserCase {
	return []parserCase{
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
	}
}

// headCases are about the notations of families, but for tags.
func headCases() []parserCase {
	return []parserCase{
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
		{"quotes that are not escaped", "lfm2", "", `<|tool_call_start|>[f(s='it's "here" or 'there'.', n=1)]<|tool_call_end|>`, `#0 f() {"s": "it's \"here\" or 'there'.", "n": 1} end()`},
		{"an escaped quote", "lfm2", "", `<|tool_call_start|>[f(s='it\'s', o={'k': 'v'})]<|tool_call_end|>`, `#0 f() {"s": "it's", "o": {"k": "v"}} end()`},
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
	}
}

// tagCases have parameters between tags, and other special notations.
func tagCases() []parserCase {
	return []parserCase{
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
}
