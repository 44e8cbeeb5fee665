package toolcall

// llama is the notation of Llama 3.1 to 3.3: a message that is one JSON object with
// name and parameters, also after <|python_tag|>, where built-in tools are called as
// NAME.call(KEY="TEXT").
var llama = spec{
	name:   "llama",
	all:    [][]string{{"<|python_tag|>"}, {"ipython", `"parameters": `}},
	thinks: []think{xmlThink},
	forms: []form{
		{
			open: "<|python_tag|>", objects: true,
			head: []field{{kind: nameField, until: "("}}, body: bodyPython,
		},
		{peek: "{", objects: true},
	},
}

// llamaPythonic is that of Llama 4, and of Llama 3.2 if the prompt requests it: a message that is a
// list of Python calls.
var llamaPythonic = spec{
	name:   "llama-pythonic",
	all:    [][]string{{"[func_name1("}, {"[func1("}},
	thinks: []think{xmlThink},
	forms: []form{
		{
			open: "<|python_start|>", close: "<|python_end|>",
			head: []field{{kind: nameField, until: "("}}, body: bodyPython,
		},
		{peek: "[", head: []field{{kind: nameField, until: "("}}, body: bodyPython},
	},
}
