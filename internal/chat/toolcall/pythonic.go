package toolcall

import "github.com/heftai/heft/internal/layout"

// lfm2 is the notation of LFM 2: <|tool_call_start|>[f(a=1), g()]<|tool_call_end|>.
// Its templates do not show it: they print calls as content.
var lfm2 = spec{
	name:   "lfm2",
	all:    [][]string{{"<|tool_call_start|>"}, {"<|tool_list_start|>"}, {"keep_past_thinking", "List of tools: ["}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: "<|tool_call_start|>", close: "<|tool_call_end|>", objects: true,
		head: []field{{kind: nameField, until: "("}}, body: bodyPython,
	}},
	written: &Notation{
		Before: "<|tool_call_start|>[", Between: "), ", After: ")]<|tool_call_end|>", Arguments: &pythonArguments,
	},
}

// pythonArguments are keyword arguments up to the closing parenthesis.
var pythonArguments = Arguments{layout.Object{Kind: layout.Python, First: "(", Next: ", ", Empty: "(", Equals: "=", EqualsText: "="}}

// olmo3 is that of OLMo 3: Python calls, a line each, in <function_calls>.
var olmo3 = spec{
	name:   "olmo3",
	all:    [][]string{{"<function_calls>"}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: "<function_calls>", close: "</function_calls>",
		head: []field{{kind: nameField, until: "("}}, body: bodyPython,
	}},
}
