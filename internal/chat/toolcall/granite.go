package toolcall

// granite is the notation of Granite 3 and Phi 4 mini: <|tool_call|> and a list of
// objects; Phi closes it. Granite 3.3 also marks its answer after reasoning.
var granite = spec{
	name:   "granite",
	all:    [][]string{{"<|tool_call|>"}, {"<|start_of_role|>", "<response>"}},
	thinks: []think{xmlThink},
	forms: []form{
		{open: "<|tool_call|>", close: "<|/tool_call|>", objects: true},
		{open: "<tool_call>", close: "</tool_call>", objects: true},
	},
	frames: []string{"<response>", "</response>"},
	written: &Notation{
		Before: `<|tool_call|>[{"name": "`, Infix: `", "arguments": `, Between: `}, {"name": "`, After: `}]`,
	},
}
