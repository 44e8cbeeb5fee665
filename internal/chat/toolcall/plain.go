package toolcall

// plain is for templates without calls: all text is the answer, or reasoning.
var plain = spec{
	name:   "plain",
	thinks: []think{xmlThink, {open: "[THINK]", close: "[/THINK]"}},
	frames: []string{"<answer>", "</answer>"},
}
