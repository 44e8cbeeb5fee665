package toolcall

// toolCallList is the notation of Apriel, MiniMax M1 and Hunyuan: one or more objects
// in <tool_calls>, as a list or not.
var toolCallList = spec{
	name: "tool-calls",
	all:  [][]string{{"<tool_calls>"}},
	thinks: []think{
		xmlThink, {open: "<thinking>", close: "</thinking>"},
		{open: "Here are my reasoning steps:", close: "[BEGIN FINAL RESPONSE]", implied: []string{"<tool_calls>"}},
	},
	forms:  []form{{open: "<tool_calls>", close: "</tool_calls>", objects: true}},
	frames: []string{"[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "<answer>", "</answer>"},
}

// nemotron is that of Nemotron Nano 2: a list of objects in <TOOLCALL>.
var nemotron = spec{
	name:   "nemotron",
	all:    [][]string{{"<TOOLCALL>"}},
	thinks: []think{xmlThink},
	forms:  []form{{open: "<TOOLCALL>", close: "</TOOLCALL>", objects: true}},
}

// firefunction is that of Firefunction 2: functools and a list of objects.
var firefunction = spec{
	name:  "firefunction",
	all:   [][]string{{"functools["}},
	forms: []form{{open: "functools", objects: true}},
}

// apertus is that of Apertus: a list of objects whose only key is the function's name.
var apertus = spec{
	name:   "apertus",
	all:    [][]string{{"<|tools_prefix|>"}},
	thinks: []think{{open: "<|inner_prefix|>", close: "<|inner_suffix|>"}},
	forms:  []form{{open: "<|tools_prefix|>", close: "<|tools_suffix|>", objects: true, keyed: true}},
}

// gigachat is that of GigaChat 3: a separate message that contains one object.
var gigachat = spec{
	name: "gigachat",
	all:  [][]string{{"function call", "<|role_sep|>"}, {"<|function_call|>"}},
	forms: []form{
		{open: "function call<|role_sep|>", close: "<|message_sep|>", objects: true},
		{open: "<|function_call|>", close: "<|message_sep|>", objects: true},
	},
	drops: []string{"<|message_sep|>"},
}
