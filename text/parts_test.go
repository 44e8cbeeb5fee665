package text

import "testing"

// TestATemplateThatDescribesContentGetsText: a template that mentions content only in a description gets content as a text,
// not as a list of parts.
func TestATemplateThatDescribesContentGetsText(t *testing.T) {
	for source, want := range map[string]bool{
		`{%- for part in message['content'] %}`:                        true,
		`{% for part in content | selectattr('type') %}`:               true,
		`{%+ for part in (messages[0].content or []) -%}`:              true,
		`{% for m in messages %}{{ m.content }}{% endfor %}`:           false,
		`{% for m in messages if m.content is defined %}`:              false,
		`{% for i in range(1, content | length) %}`:                    false,
		`{% for i in range(content | length) %}`:                       false,
		"{{ x }} for use in the dialog: a name and the file's content": false,
	} {
		if got := takesParts.MatchString(source); got != want {
			t.Errorf("%s: %v", source, got)
		}
	}
}
