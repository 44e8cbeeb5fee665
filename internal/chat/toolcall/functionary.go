package toolcall

// functionary31 is the notation of Functionary 3.1: <function=NAME>{…}</function>.
var functionary31 = spec{
	name:  "functionary-v3.1",
	all:   [][]string{{"<function=", "</function>"}},
	forms: []form{{open: "<function=", head: []field{{kind: nameField, until: ">"}}, end: "</function>"}},
}

// functionary32 is that of Functionary 3.2: messages to recipients, which are the user or the name
// of a function. The prompt ends with the first marker.
var functionary32 = spec{
	name:  "functionary-v3.2",
	all:   [][]string{{">>>all"}, {">>>", "recipient"}},
	forms: []form{{open: ">>>", head: []field{{kind: nameField, until: "\n"}}}},
	drops: []string{">>>all\n"},
	seeds: []string{">>>"},
}
