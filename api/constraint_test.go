package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// askedOnce is a conversation.
var askedOnce = []obj{{"role": "user", "content": "hello"}}

// tree is what TestARandomModelEmitsOnlyValidDocuments asks for.
type tree struct {
	Name *string `json:"name"`
	Kind string  `json:"kind"`
	Size *int    `json:"size"`
	Kids []tree  `json:"kids"`
}

const treeSchema = `{"$defs": {"node": {"type": "object", "properties": {
	"name": {"type": ["string", "null"], "maxLength": 6}, "kind": {"enum": ["leaf", "le\"af", "ast"]}, "size": {"type": "integer", "minimum": -20, "maximum": 300},
	"kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1}},
	"required": ["kind", "kids"], "additionalProperties": false}}, "$ref": "#/$defs/node"}`

// fault describes the error in a tree.
func (n *tree) fault() string {
	switch {
	case n.Name != nil && len([]rune(*n.Name)) > 6:
		return "name is too long"
	case !slices.Contains([]string{"leaf", `le"af`, "ast"}, n.Kind):
		return "kind"
	case n.Size != nil && (*n.Size < -20 || *n.Size > 300):
		return "size"
	case n.Kids == nil || len(n.Kids) > 1:
		return "kids"
	}
	for i := range n.Kids {
		if f := n.Kids[i].fault(); f != "" {
			return f
		}
	}
	return ""
}

// TestARandomModelEmitsOnlyValidDocuments: whatever the model would like to say, a constrained answer
// that ends is valid, in both endpoints and in the dialects of vLLM and llama.cpp.
func TestARandomModelEmitsOnlyValidDocuments(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{MaxLen: 2048}, engine.Options{})
	s := serve(t, m)
	schema := json.RawMessage(treeSchema)
	checkTree := func(text string) string {
		var n tree
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&n); err != nil || d.More() {
			return fmt.Sprint("not a tree: ", err)
		}
		return n.fault()
	}
	date := regexp.MustCompile(`^\d{4}-[01]\d-[0-3]\d!$`)
	letters := regexp.MustCompile(`^\p{Lu}[\p{L} ]{2,60}$`)
	address := regexp.MustCompile(`^\S{1,64}@\S{1,255}$`)
	cases := map[string]struct {
		fields obj
		fault  func(string) string
	}{
		"response_format":            {obj{"response_format": obj{"type": "json_schema", "json_schema": obj{"name": "tree", "strict": true, "schema": schema}}}, checkTree},
		"llama.cpp's schema":         {obj{"response_format": obj{"type": "json_object", "schema": schema}}, checkTree},
		"llama.cpp's json_schema":    {obj{"json_schema": schema}, checkTree},
		"guided_json":                {obj{"guided_json": schema}, checkTree},
		"guided_json in a string":    {obj{"guided_json": treeSchema}, checkTree},
		"structured_outputs.json":    {obj{"structured_outputs": obj{"json": schema}}, checkTree},
		"structured_outputs.regex":   {obj{"structured_outputs": obj{"regex": `\d{4}-[01]\d-[0-3]\d!`}}, faultUnless(date.MatchString)},
		"guided_regex":               {obj{"guided_regex": `[0-9]{4}-[01]\d-[0-3]\d!`}, faultUnless(date.MatchString)},
		"a regex of many letters":    {obj{"guided_regex": `\p{Lu}[\p{L} ]{2,60}`}, faultUnless(letters.MatchString)},
		"a regex with large counts":  {obj{"guided_regex": `\S{1,64}@\S{1,255}`}, faultUnless(address.MatchString)},
		"grammar":                    {obj{"grammar": sumGrammar}, faultUnless(isSum)},
		"guided_grammar":             {obj{"guided_grammar": sumGrammar}, faultUnless(isSum)},
		"structured_outputs.grammar": {obj{"structured_outputs": obj{"grammar": sumGrammar}}, faultUnless(isSum)},
		"guided_grammar of Lark":     {obj{"guided_grammar": sumLark}, faultUnless(isSum)},
		"grammar of Lark":            {obj{"structured_outputs": obj{"grammar": sumLark}}, faultUnless(isSum)},
		"TGI's grammar":              {obj{"grammar": obj{"type": "json", "value": schema}}, checkTree},
		"guided_choice":              {obj{"guided_choice": []string{"yes", "yes!", "no"}}, faultUnless(func(s string) bool { return slices.Contains([]string{"yes", "yes!", "no"}, s) })},
		"structured_outputs.choice":  {obj{"structured_outputs": obj{"choice": []string{"ä", "🙂"}}}, faultUnless(func(s string) bool { return s == "ä" || s == "🙂" })},
	}
	for name, c := range cases {
		for _, path := range []string{completions, chat} {
			t.Run(name+path, func(t *testing.T) {
				body := obj{"max_tokens": 1500, "n": 4, "seed": 7, "temperature": 1}
				if path == chat {
					body["messages"] = askedOnce
				} else {
					body["prompt"] = "hello"
				}
				for k, v := range c.fields {
					body[k] = v
				}
				checkAnswers(t, s, path, body, c.fault)
			})
		}
	}
}

// TestAGrammarOfVLLMMayBeLarks: a grammar in Lark's notation, as outlines sends it, was a 400 that asked for "::=".
func TestAGrammarOfVLLMMayBeLarks(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{MaxLen: 64}, engine.Options{}))
	ask := func(field string, value any) (int, string) {
		status, got := s.object("POST", completions, obj{"prompt": "hello", "max_tokens": 9, field: value})
		return status, fmt.Sprint(got)
	}
	for _, field := range []string{"guided_grammar", "grammar", "structured_outputs"} {
		var value any = `start: "yes" | "no"`
		wrong := `begin: "yes"`
		var broken any = wrong
		if field == "structured_outputs" {
			value, broken = obj{"grammar": value}, obj{"grammar": wrong}
		}
		status, got := ask(field, value)
		if llama := field == "grammar"; llama != (status == 400) || llama != strings.Contains(got, "::=") {
			t.Errorf("%s: got %d %s", field, status, got)
		}
		if status, got := ask(field, broken); status != 400 || (field != "grammar") != strings.Contains(got, "start") {
			t.Errorf("%s without start: got %d %s, want a 400", field, status, got)
		}
	}
}

// TestMinTokensHoldWhileTheGrammarCanGoOn: the end is forbidden until then, unless nothing else may
// follow. It was a 400.
func TestMinTokensHoldWhileTheGrammarCanGoOn(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{MaxLen: 2048}, engine.Options{}))
	for regex, least := range map[string]int{"(ab)*": 40, "yes|no": 1} {
		_, got := s.object("POST", completions, obj{"prompt": "hello", "guided_regex": regex, "min_tokens": 40, "max_tokens": 900, "temperature": 1, "seed": 5})
		usage, _ := got["usage"].(map[string]any)
		n, _ := strconv.Atoi(fmt.Sprint(usage["completion_tokens"]))
		if n < least {
			t.Errorf("%s: %v", regex, got)
		}
	}
}

const sumGrammar = `root ::= sum "."
sum ::= term (" + " term){0,2}
term ::= [0-9]{1,2} | "(" sum ")"`

// sumLark is sumGrammar in Lark's notation, which vLLM takes in the same fields: outlines sends it.
const sumLark = `start: sum "."
sum: term (" + " term)~0..2
?term: /[0-9]{1,2}/ | "(" sum ")"`

// isSum reports whether s is a text of sumGrammar.
func isSum(s string) bool {
	for range 200 {
		inner := regexp.MustCompile(`\((\d\d?|N)( \+ (\d\d?|N)){0,2}\)`).ReplaceAllString(s, "N")
		if inner == s {
			return regexp.MustCompile(`^(\d\d?|N)( \+ (\d\d?|N)){0,2}\.$`).MatchString(s)
		}
		s = inner
	}
	return false
}

func faultUnless(ok func(string) bool) func(string) string {
	return func(text string) string {
		if ok(text) {
			return ""
		}
		return "no match"
	}
}

// checkAnswers checks the answers that end; at least one must.
func checkAnswers(t *testing.T, s *server, path string, body obj, fault func(string) string) {
	t.Helper()
	var answer struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
	}
	status, text := s.text("POST", path, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	ended := 0
	for _, c := range answer.Choices {
		text := c.Text + c.Message.Content
		if c.Finish != "stop" {
			continue
		}
		ended++
		if f := fault(text); f != "" {
			t.Errorf("%s: %s", f, text)
		}
	}
	if ended == 0 {
		t.Errorf("no answer ended: %+v", answer)
	}
}

// notations are templates that write calls in different ways.
var notations = map[string]string{
	"tags": `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|turn|>{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}`,
	"a list with ids": `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}` +
		`{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}<|turn|>{% endfor %}` +
		`{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% endif %}`,
	"reasoning": `{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|turn|>{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|><think>{% endif %}`,
}

const (
	weatherSchema = `{"type": "object", "properties": {"city": {"enum": ["Bern", "Zürich"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city"], "additionalProperties": false}`
	timeSchema    = `{"type": "object", "properties": {"zone": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "required": ["zone"], "additionalProperties": false}`
)

func callable(strict bool) []obj {
	return []obj{
		{"type": "function", "function": obj{"name": "get_weather", "strict": strict, "parameters": json.RawMessage(weatherSchema)}},
		{"type": "function", "function": obj{"name": "get_time", "strict": strict, "parameters": json.RawMessage(timeSchema)}},
	}
}

// callFault describes the error in a call of one of the functions.
func callFault(name, arguments string) string {
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	switch name {
	case "get_weather":
		var v struct {
			City string
			Days *int
		}
		if err := d.Decode(&v); err != nil || v.City != "Bern" && v.City != "Zürich" || v.Days != nil && (*v.Days < 1 || *v.Days > 9) {
			return fmt.Sprint("arguments: ", err)
		}
		return ""
	case "get_time":
		var v struct{ Zone string }
		if err := d.Decode(&v); err != nil || !regexp.MustCompile(`^[A-Z]{3}$`).MatchString(v.Zone) {
			return fmt.Sprint("arguments: ", err)
		}
		return ""
	}
	return "no such function"
}

// TestARandomModelMakesOnlyValidCalls: forced calls are made, of the function that is asked for, with
// arguments that satisfy the schema.
func TestARandomModelMakesOnlyValidCalls(t *testing.T) {
	for name, template := range notations {
		t.Run(name, func(t *testing.T) {
			s := serve(t, randomCaller(t, template))
			body := func(more obj) obj {
				b := obj{"messages": askedOnce, "tools": callable(false), "max_tokens": 4000, "n": 4, "seed": 3, "temperature": 1}
				maps.Copy(b, more)
				return b
			}
			checkCalls(t, s, body(obj{"tool_choice": "required"}), "", 1, 0)
			checkCalls(t, s, body(obj{"tool_choice": obj{"type": "function", "function": obj{"name": "get_time"}}}), "get_time", 1, 0)
			checkCalls(t, s, body(obj{"tool_choice": "required", "parallel_tool_calls": false}), "", 1, 1)
			checkCalls(t, s, body(obj{"parallel_tool_calls": false, "tools": callable(true)}), "", 0, 1)
			checkCalls(t, s, body(obj{"tools": callable(true)}), "", 0, 0)
			both := obj{"response_format": obj{"type": "json_schema", "json_schema": obj{"schema": json.RawMessage(weatherSchema)}}}
			both["tools"] = callable(true)
			checkCalls(t, s, body(both), "", 0, 0)
		})
	}
}

// checkCalls checks the calls of answers that end: each has from least to most calls, 0 is any.
func checkCalls(t *testing.T, s *server, body obj, name string, least, most int) {
	t.Helper()
	var answer struct {
		Choices []struct {
			Message struct {
				Content   *string
				Reasoning string
				Calls     []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish string `json:"finish_reason"`
		}
	}
	status, text := s.text("POST", chat, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	ended := 0
	for _, c := range answer.Choices {
		if c.Finish == "length" {
			continue
		}
		ended++
		calls := c.Message.Calls
		if len(calls) < least || most > 0 && len(calls) > most || least > 0 && c.Finish != map[bool]string{false: "tool_calls", true: "stop"}[name != ""] {
			t.Errorf("%v: %d calls, finish_reason %s: … %q %q", body["tool_choice"], len(calls), c.Finish, c.Message.Reasoning[max(0, len(c.Message.Reasoning)-150):], *c.Message.Content)
		}
		for _, call := range calls {
			if f := callFault(call.Function.Name, call.Function.Arguments); f != "" || name != "" && call.Function.Name != name {
				t.Errorf("%s: call of %s with %s", f, call.Function.Name, call.Function.Arguments)
			}
		}
	}
	if ended == 0 && least > 0 {
		t.Errorf("no answer ended: %.500s", text)
	}
}

// reasoningHermes is a template with reasoning and calls.
const reasoningHermes = `{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}{{ m.content }}` +
	`{% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n' }}{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}{{ '\n</tool_call>' }}{% endfor %}<|turn|>{% endfor %}` +
	`{% if tools %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}`

// TestAForcedCallReasonedAlthoughThinkingWasOff: with enable_thinking false the prompt has ended the reasoning, and a
// forced call or a document began with <think> again, if the model wanted that, up to max_tokens. Without the argument
// the model may reason before it.
func TestAForcedCallReasonedAlthoughThinkingWasOff(t *testing.T) {
	const call = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>"
	for name, special := range map[string][]string{"special markers": {"<think>", "</think>"}, "spelled markers": nil} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: reasoningHermes, Special: special, Says: "<think>Hm.</think>\n" + call}, engine.Options{}))
			for kind, more := range map[string]obj{"forced": {"tool_choice": "required", "tools": callable(false)},
				"named":    {"tool_choice": obj{"type": "function", "function": obj{"name": "get_time"}}, "tools": callable(false)},
				"document": {"response_format": obj{"type": "json_object"}}} {
				ask := func(thinking any) spoken {
					body := obj{"messages": askedOnce, "max_tokens": 400, "temperature": 0}
					if thinking != nil {
						body["chat_template_kwargs"] = obj{"enable_thinking": thinking}
					}
					maps.Copy(body, more)
					return whole(t, s.answers(chat, body)[0])
				}
				for _, thinking := range []any{nil, true} {
					got := ask(thinking)
					if got.Reasoning != "Hm." || kind != "document" && (len(got.Calls) != 1 || callFault(got.Calls[0].Name, got.Calls[0].Arguments) != "") {
						t.Errorf("%s, enable_thinking %v: got %+v, want reasoning and a call", kind, thinking, got)
					}
				}
				got := ask(false)
				if got.Reasoning != "" || strings.Contains(got.Content, "think") {
					t.Errorf("%s, enable_thinking false: got %+v, want no reasoning", kind, got)
				}
				if kind != "document" && (len(got.Calls) == 0 || callFault(got.Calls[0].Name, got.Calls[0].Arguments) != "") {
					t.Errorf("%s, enable_thinking false: got %+v, want a call at once", kind, got)
				}
			}
		})
	}
}
