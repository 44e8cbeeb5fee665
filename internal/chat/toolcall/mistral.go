package toolcall

// mistral is the notation of Mistral's models: [TOOL_CALLS] and a list of objects
// with name, arguments and id, or, since the summer of 2025,
// [TOOL_CALLS]NAME[ARGS]{…}, with [CALL_ID] and the id between in some. The ids have
// nine letters or digits.
var mistral = spec{
	name:   "mistral",
	all:    [][]string{{"[TOOL_CALLS]"}},
	thinks: []think{{open: "[THINK]", close: "[/THINK]"}, xmlThink},
	forms: []form{{
		open: "[TOOL_CALLS]", objects: true,
		head: []field{{kind: nameIDField, until: "[ARGS]", stop: "{"}},
	}},
	ids: mistralID,
}
