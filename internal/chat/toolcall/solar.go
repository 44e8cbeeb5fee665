package toolcall

// solar is the format of Solar Open: an answer is several messages, each with a kind.
var solar = spec{
	name:   "solar",
	all:    [][]string{{"<|tool_call:begin|>"}},
	thinks: []think{{open: "<|think|>", close: "<|end|>", implied: []string{"<|begin|>", "<|tool_calls|>"}}},
	forms: []form{{
		open: "<|tool_calls|>", close: "<|calls|>", call: "<|tool_call:begin|>",
		head: []field{{kind: idField, until: "<|tool_call:name|>"}, {kind: nameField, until: "<|tool_call:args|>"}},
		end:  "<|tool_call:end|>",
	}},
	drops: []string{"<|begin|>assistant", "<|content|>", "<|end|>", "<|calls|>"},
}
