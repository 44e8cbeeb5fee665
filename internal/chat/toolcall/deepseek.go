package toolcall

const (
	deepseekCalls = "<｜tool▁calls▁begin｜>"
	deepseekCall  = "<｜tool▁call▁begin｜>"
	deepseekSep   = "<｜tool▁sep｜>"
	deepseekEnd   = "<｜tool▁call▁end｜>"
	deepseekDone  = "<｜tool▁calls▁end｜>"
)

// deepseekV3 is the notation of DeepSeek V3 and R1: the type, the name and the arguments in a code
// fence. A section ends reasoning that is still open.
var deepseekV3 = spec{
	name:   "deepseek-v3",
	all:    [][]string{{deepseekCall, "```json"}},
	thinks: []think{{open: "<think>", close: "</think>", implied: []string{deepseekCalls}}},
	forms: []form{{
		open: deepseekCalls, close: deepseekDone, bare: true, call: deepseekCall,
		head: []field{{kind: skipField, until: deepseekSep}, {kind: nameField, until: "\n"}},
		end:  deepseekEnd,
	}},
	written: &Notation{
		Before:  deepseekCalls + deepseekCall + "function" + deepseekSep,
		Infix:   "\n```json\n",
		Between: "\n```" + deepseekEnd + "\n" + deepseekCall + "function" + deepseekSep,
		After:   "\n```" + deepseekEnd + deepseekDone,
	},
}

// deepseekV31 is that of DeepSeek V3.1: only the name and the arguments.
var deepseekV31 = spec{
	name:   "deepseek-v3.1",
	all:    [][]string{{deepseekCall}},
	thinks: []think{{open: "<think>", close: "</think>", implied: []string{deepseekCalls}}},
	forms: []form{{
		open: deepseekCalls, close: deepseekDone, bare: true, call: deepseekCall,
		head: []field{{kind: nameField, until: deepseekSep}},
		end:  deepseekEnd,
	}},
}

// deepseekDSML is that of DeepSeek V3.2 and V4. Its parameters say whether they are text or JSON.
// The section has had two names.
var deepseekDSML = spec{
	name:   "deepseek-dsml",
	all:    [][]string{{"｜DSML｜"}},
	thinks: []think{{open: "<think>", close: "</think>", implied: []string{"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"}}},
	forms:  []form{dsml("tool_calls"), dsml("function_calls")},
}

func dsml(section string) form {
	return form{
		open: "<｜DSML｜" + section + ">", close: "</｜DSML｜" + section + ">",
		call: `<｜DSML｜invoke name="`, head: []field{{kind: nameField, until: `">`}},
		body: bodyTags, tags: &dsmlParameters, end: "</｜DSML｜invoke>",
	}
}

var dsmlParameters = tags{
	open: `<｜DSML｜parameter name="`, key: `"`,
	value: []string{`string="true">`, `string="false">`}, typed: true,
	close: "</｜DSML｜parameter>",
}
