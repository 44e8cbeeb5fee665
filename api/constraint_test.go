package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
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

// fault is what is wrong with a tree.
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
		"grammar":                    {obj{"grammar": sumGrammar}, faultUnless(isSum)},
		"guided_grammar":             {obj{"guided_grammar": sumGrammar}, faultUnless(isSum)},
		"structured_outputs.grammar": {obj{"structured_outputs": obj{"grammar": sumGrammar}}, faultUnless(isSum)},
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

const sumGrammar = `root ::= sum "."
sum ::= term (" + " term){0,2}
term ::= [0-9]{1,2} | "(" sum ")"`

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
