package toolcall

// kimi is the notation of Kimi K2. Its ids contain the name: functions.NAME:NUMBER.
var kimi = spec{
	name:   "kimi-k2",
	all:    [][]string{{"<|tool_call_argument_begin|>"}},
	thinks: []think{{open: "<think>", close: "</think>", implied: []string{"<|tool_calls_section_begin|>"}}},
	forms: []form{{
		open: "<|tool_calls_section_begin|>", close: "<|tool_calls_section_end|>", bare: true,
		call: "<|tool_call_begin|>", head: []field{{kind: idNameField, until: "<|tool_call_argument_begin|>"}},
		end: "<|tool_call_end|>",
	}},
	ids: kimiID,
	written: &Notation{
		Before:  "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
		Infix:   ":" + callIndex + "<|tool_call_argument_begin|>",
		Between: "<|tool_call_end|><|tool_call_begin|>functions.",
		After:   "<|tool_call_end|><|tool_calls_section_end|>",
		Index:   callIndex,
	},
}
