package toolcall

// commandR is the notation of Command R and R+: "Action:" and a list of objects in a
// code fence.
var commandR = spec{
	name:  "command-r",
	all:   [][]string{{"Action:", "```json", "tool_name"}},
	forms: []form{{open: "Action:", close: "```", objects: true}},
}

// commandR7B is that of Command R7B and later models.
var commandR7B = spec{
	name:   "command-r7b",
	all:    [][]string{{"<|START_ACTION|>"}},
	thinks: []think{{open: "<|START_THINKING|>", close: "<|END_THINKING|>", implied: []string{"<|START_ACTION|>", "<|START_RESPONSE|>"}}},
	forms:  []form{{open: "<|START_ACTION|>", close: "<|END_ACTION|>", objects: true}},
	drops:  []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
}
