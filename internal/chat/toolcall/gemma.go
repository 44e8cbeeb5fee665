package toolcall

// gemma4 is the notation of Gemma 4: <|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>.
// Earlier ones have no calls.
var gemma4 = spec{
	name:   "gemma4",
	all:    [][]string{{"<|tool_call>call:"}},
	thinks: []think{{open: "<|channel>thought", close: "<channel|>", implied: []string{"<|tool_call>"}}},
	forms: []form{{
		open: "<|tool_call>call:", head: []field{{kind: nameField, until: "{"}},
		body: bodyBare, quote: `<|"|>`, end: "<tool_call|>",
	}},
}
