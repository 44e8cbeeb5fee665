package chat

import "testing"

// TestAnswersWithoutContentRender: a refusal or an answer of reasoning alone, sent back in the conversation, was a 400
// where the template reads the content, and the word None where it prints it.
func TestAnswersWithoutContentRender(t *testing.T) {
	prints := `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`
	for _, content := range []string{`"content":""`, `"content":null`, `"refusal":"No."`} {
		for template, want := range map[string]string{strict: "user:Hi|A:|user:Why?|", prints: "[user]Hi[assistant][user]Why?"} {
			got, err := adapted(t, mustParse(t, template), `[{"role":"user","content":"Hi"},{"role":"assistant",`+content+`},{"role":"user","content":"Why?"}]`)
			if err != nil || got != want {
				t.Errorf("%s: got %q, %v, want %q", content, got, err, want)
			}
		}
	}
}

// TestCallsWithoutArgumentsRender: a call without arguments was "Object of type Undefined is not JSON serializable".
func TestCallsWithoutArgumentsRender(t *testing.T) {
	for _, arguments := range []string{"", `,"arguments":null`, `,"arguments":""`, `,"arguments":"{}"`} {
		got, err := adapted(t, mustParse(t, `{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`),
			`[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"now"`+arguments+`}}]}]`)
		if err != nil || got != "now{}" {
			t.Errorf("%s: got %q, %v, want now{}", arguments, got, err)
		}
	}
}

// TestFunctionCallsBecomeToolCalls: OpenAI's deprecated function_call failed in templates, or was left out.
func TestFunctionCallsBecomeToolCalls(t *testing.T) {
	const conversation = `[{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{\"city\": \"Oslo\"}"}},
		{"role":"function","name":"weather","content":"4"}]`
	want := `user:Weather?|A:<call>{"name": "weather", "arguments": {"city": "Oslo"}}</call>|tool:4|`
	if got, err := adapted(t, mustParse(t, strict), conversation); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	native := `{% for m in messages %}[{{ m.role }}]{{ m.function_call.name if m.function_call }}{% endfor %}`
	if got, err := adapted(t, mustParse(t, native), conversation); err != nil || got != "[user][assistant]weather[function]" {
		t.Errorf("a template with function calls of its own: got %q, %v", got, err)
	}
}

// TestRolesThatTheTemplateLeavesOut: a message of the role human disappeared, and the model answered without it.
func TestRolesThatTheTemplateLeavesOut(t *testing.T) {
	generic := `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`
	for _, c := range []struct{ template, messages, want string }{
		{strict, `[{"role":"user","content":"Hi"}]`, ""},
		{strict, `[{"role":"human","content":"Hi"}]`, "human"},
		{strict, `[{"role":"user","content":"Hi"},{"role":"human","content":""},{"role":"bot"}]`, "human"},
		{generic, `[{"role":"human","content":"Hi"}]`, ""},
		{`{{ raise_exception("no") }}`, `[{"role":"human","content":"Hi"}]`, ""},
	} {
		if got := mustParse(t, c.template).Unshown(Request{Messages: messagesOf(t, c.messages)}); got != c.want {
			t.Errorf("%s of %s: got %q, want %q", c.template, c.messages, got, c.want)
		}
	}
}
