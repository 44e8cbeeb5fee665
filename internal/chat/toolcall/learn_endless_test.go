package toolcall

import "testing"

// TestCallsWithoutAnEndWereNotLearned: tags, tables, YAML lists and Markdown headings without a text that
// ends a call. It ends before the next call, the end of the section, or text that is not a parameter.
func TestCallsWithoutAnEndWereNotLearned(t *testing.T) {
	for _, c := range []struct{ template, text, want string }{
		{"no-end-tags", "Both.<|call|>f\n<arg name=\"s\">a<b</arg>\n<|call|>g\n<arg name=\"n\">7</arg>", "Both.\nf{\"s\": \"a<b\"}\ng{\"n\": 7}"},
		{"no-end-tags", "<|call|>f\n<arg name=\"s\">a</arg>\n<b>Done.", "<b>Done.\nf{\"s\": \"a\"}"},
		{"no-end-tags", "<|call|>unknown\n<arg name=\"s\">a</arg>\n", "<|call|>unknown\n<arg name=\"s\">a</arg>"},
		{"no-end-tags", "<|call|>unknown\nand more", "<|call|>unknown\nand more"},
		{"table", "### Tool: f\n| Parameter | Value |\n|---|---|\n| s | a|b |\n| n | 7 |\n### Tool: g\n| Parameter | Value |\n|---|---|\n", "\nf{\"s\": \"a|b\", \"n\": 7}\ng{}"},
		{"table", "### Tool: the hammer", "### Tool: the hammer"},
		{"yaml-list-plain", "<tool_calls>\n- name: f\n  arguments:\n    s: a - b: c\n    n: 7\n- name: g\n  arguments:\n</tool_calls>", "\nf{\"s\": \"a - b: c\", \"n\": 7}\ng{}"},
		{"yaml-list-json", "<tool_calls>\n- name: f\n  arguments:\n    s: \"- name: g\"\n- name: g\n  arguments:\n</tool_calls>\n", "\nf{\"s\": \"- name: g\"}\ng{}"},
		{"heading-plain", "## Call: f\n- s: a\n- x: b\n- n: 7\n## Call: g\n", "\nf{\"s\": \"a\\n- x: b\", \"n\": 7}\ng{}"},
		{"no-end-json-values", "@@ f\ns = \"x\"\nn = 7", "\nf{\"s\": \"x\", \"n\": 7}"},
		{"no-end-json-values", "@@ f\nn = 7\nThat = it.", "That = it.\nf{\"n\": 7}"},
	} {
		t.Run(c.template, func(t *testing.T) { parsesTo(t, unseen(t, c.template), c.text, c.want) })
	}
}

// TestSeparatedCallsWereNotLearned: a text stands between the calls of a section, once.
func TestSeparatedCallsWereNotLearned(t *testing.T) {
	parsesTo(t, unseen(t, "separated-tag"), `<|calls|>f {"n": 1}<|next|>g {}<|done|>`, "\nf{\"n\": 1}\ng{}")
	parsesTo(t, unseen(t, "separated-pipe"), `<tool>f({"s": ") | g("}) | g({})</tool>`, "\nf{\"s\": \") | g(\"}\ng{}")
	parsesTo(t, unseen(t, "separated-python"), `[TOOLS]f(s=" && ") && g()[/TOOLS]`, "\nf{\"s\": \" && \"}\ng{}")
	const object = `{"tool": "f", "input": {"n": 1}}`
	parsesTo(t, unseen(t, "separated-objects"), "<calls>\n"+object+"\n---\n"+object+"\n</calls>", "\nf{\"n\": 1}\nf{\"n\": 1}")
	parsesTo(t, unseen(t, "separated-objects"), "<calls>---\n"+object+"</calls>", "<calls>---\n"+object+"</calls>")
}

// TestCloseThatBeginsLikeACallWasContent: the end of a section begins with the marker of a call.
func TestCloseThatBeginsLikeACallWasContent(t *testing.T) {
	parsesTo(t, unseen(t, "percent"), "Both.%%tools\n%f {\"n\": 1}\n%g {}\n%%end\n", "Both.\nf{\"n\": 1}\ng{}")
	parsesTo(t, unseen(t, "element-named"), "<invoke><f><s>a</s><n>7</n></f><g></g></invoke>", "\nf{\"s\": \"a\", \"n\": 7}\ng{}")
}
