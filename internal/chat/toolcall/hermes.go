package toolcall

// hermes is the notation of Hermes, Qwen 2.5 and 3, SmolLM 3, Granite 4, EXAONE, MiMo
// and many more: <tool_call>{"name": …, "arguments": …}</tool_call>.
var hermes = spec{
	name:   "hermes",
	all:    [][]string{{"<tool_call>"}},
	thinks: []think{xmlThink},
	forms:  []form{{open: "<tool_call>", close: "</tool_call>", objects: true}},
}
