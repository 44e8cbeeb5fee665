package toolcall

// minicpm is the notation of MiniCPM 5: attributes for names, text in CDATA if necessary, other
// values as Python prints them.
var minicpm = spec{
	name:   "minicpm",
	all:    [][]string{{`<function name="`, `<param name="`}},
	thinks: []think{xmlThink},
	forms: []form{{
		open: `<function name="`, head: []field{{kind: nameField, until: `">`}},
		body: bodyTags, end: "</function>",
		tags: &tags{open: `<param name="`, key: `">`, close: "</param>", cdata: true},
	}},
}
