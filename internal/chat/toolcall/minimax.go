package toolcall

// minimaxM2 is the notation of MiniMax M2: tags with its own names.
var minimaxM2 = spec{
	name:   "minimax-m2",
	all:    [][]string{{"<minimax:tool_call>"}, {"minimax:tool_call"}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: "<minimax:tool_call>", close: "</minimax:tool_call>",
		call: `<invoke name="`, head: []field{{kind: nameField, until: `">`}},
		body: bodyTags, end: "</invoke>",
		tags: &tags{open: `<parameter name="`, key: `">`, close: "</parameter>"},
	}},
}
