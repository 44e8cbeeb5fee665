package toolcall

// plain is the family of templates without calls: all text is content or reasoning.
var plain = spec{
	name:   "plain",
	thinks: []think{xmlThink, {open: "[THINK]", close: "[/THINK]"}},
	frames: []string{"<answer>", "</answer>"},
}
