package toolcall

// glm is the notation of GLM 4.5 and later, Ling and Laguna:
//
//	<tool_call>NAME
//	<arg_key>KEY</arg_key>
//	<arg_value>TEXT</arg_value>
//	</tool_call>
//
// with or without the line breaks.
var glm = spec{
	name:   "glm",
	all:    [][]string{{"<arg_key>", "<arg_value>"}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: "<tool_call>", head: []field{{kind: nameField, until: "\n", stop: "<"}},
		body: bodyTags, end: "</tool_call>",
		tags: &tags{open: "<arg_key>", key: "</arg_key>", value: []string{"<arg_value>"}, close: "</arg_value>"},
	}},
}
