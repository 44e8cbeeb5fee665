package toolcall

// qwenCoder is the notation of Qwen3-Coder, Qwen 3.5, Nemotron 3 and Step 3.5:
//
//	<tool_call>
//	<function=NAME>
//	<parameter=KEY>
//	TEXT
//	</parameter>
//	</function>
//	</tool_call>
//
// Strings stand as they are, all else as JSON or as Python prints it. The models are
// known to forget <tool_call>.
var qwenCoder = spec{
	name:   "qwen-coder",
	all:    [][]string{{"<tool_call>", "<function=", "<parameter="}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: "<tool_call>", close: "</tool_call>", bare: true,
		call: "<function=", head: []field{{kind: nameField, until: ">"}},
		body: bodyTags, tags: &qwenParameters, end: "</function>",
	}},
}

var qwenParameters = tags{open: "<parameter=", key: ">", close: "</parameter>", lines: true}

// seedOSS is the same with the names of Seed-OSS.
var seedOSS = spec{
	name:   "seed-oss",
	all:    [][]string{{"<seed:tool_call>"}, {"<seed:think>"}},
	thinks: []think{{open: "<seed:think>", close: "</seed:think>"}},
	forms: []form{{
		open: "<seed:tool_call>", close: "</seed:tool_call>",
		call: "<function=", head: []field{{kind: nameField, until: ">"}},
		body: bodyTags, tags: &qwenParameters, end: "</function>",
	}},
}
