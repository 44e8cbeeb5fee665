package api_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// documentOf is the document of a server that has every endpoint.
func documentOf(t *testing.T) obj {
	t.Helper()
	s := serveWith(t, api.Options{Models: []*generate.Model{generatetest.Fake(t, &enginetest.Model{}, engine.Options{})}, LoraDir: t.TempDir(),
		APIKeys: []string{"k"}, AdminKeys: []string{"a"}})
	status, d := s.object("GET", "/openapi.json", nil)
	if status != http.StatusOK || d["openapi"] != "3.1.0" {
		t.Fatalf("status %d, %v", status, d["openapi"])
	}
	return d
}

// TestDocumentHasEveryRoute: /openapi.json has each route with its types, and nothing else.
func TestDocumentHasEveryRoute(t *testing.T) {
	paths := documentOf(t)["paths"].(obj)
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	registered := map[string]bool{}
	err := chi.Walk(api.New(m, api.Options{LoraDir: t.TempDir()}).(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		registered[strings.ToLower(method)+" "+strings.Replace(route, "/*", "/{id}", 1)] = true
		return nil
	})
	if err != nil || len(registered) < 60 {
		t.Fatalf("%d routes: %v", len(registered), err)
	}
	for path, methods := range paths {
		for method, o := range methods.(obj) {
			if name := method + " " + path; !registered[name] || at(o, "summary") == "" {
				t.Errorf("%s: registered %v, summary %q", name, registered[name], at(o, "summary"))
			} else {
				delete(registered, name)
			}
		}
	}
	for name := range registered {
		t.Errorf("%s is missing", name)
	}
}

// outsideDocument are the routes that /openapi.json leaves out, each with the reason.
var outsideDocument = map[string]string{
	"GET /debug/pprof/":        "of the admin port",
	"GET /debug/pprof/cmdline": "of the admin port",
	"GET /debug/pprof/profile": "of the admin port",
	"GET /debug/pprof/symbol":  "of the admin port",
	"GET /debug/pprof/trace":   "of the admin port",
}

// TestEveryRouteOfTheSourcesIsInTheDocument: a route that is written down in a source file of the server, wherever that
// is, is in /openapi.json or in the list of exceptions, and no exception is there in vain.
func TestEveryRouteOfTheSourcesIsInTheDocument(t *testing.T) {
	paths := documentOf(t)["paths"].(obj)
	route := regexp.MustCompile(`(?:\.(?:HandleFunc|Handle|Get|Method)\(|\{)(?:http\.Method\w+, )?"((?:[A-Z]+ )?/[^"]*)", [^"]`)
	unused, found := maps.Clone(outsideDocument), 0
	err := filepath.WalkDir(".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range route.FindAllStringSubmatch(string(text), -1) {
			found++
			if delete(unused, m[1]); outsideDocument[m[1]] != "" {
				continue
			}
			_, path, hasMethod := strings.Cut(m[1], " ")
			if !hasMethod {
				path = m[1]
			}
			if paths[strings.Replace(path, "/*", "/{id}", 1)] == nil {
				t.Errorf("%s: %s is not in the document", file, m[1])
			}
		}
		return err
	})
	if err != nil || len(unused) > 0 || found < 45 {
		t.Errorf("exceptions without a route: %v; %d routes were found; %v", unused, found, err)
	}
	if got := fmt.Sprint(at(paths, "/activity", "get", "parameters")); !strings.Contains(got, "name:stream") {
		t.Errorf("the parameters of /activity: %s", got)
	}
}

// TestDocumentHasEveryField: the schema of a request has the fields that the decoders read. That it has those in docs/http.md's
// tables is tested by name; the types of some are, too.
func TestDocumentHasEveryField(t *testing.T) {
	sampling := "model min_tokens temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed stop logit_bias stop_token_ids " +
		"allowed_token_ids ignore_eos include_stop_str_in_output skip_special_tokens bad_words "
	texts := sampling + "max_tokens n best_of return_token_ids stream stream_options logprobs response_format add_special_tokens truncate_prompt_tokens " +
		"return_tokens_as_token_ids prompt_logprobs structured_outputs guided_json guided_regex guided_choice guided_grammar json_schema grammar "
	turns := "messages tools tool_choice chat_template_kwargs reasoning_effort add_generation_prompt continue_final_message documents "
	paths := documentOf(t)["paths"].(obj)
	for path, names := range map[string]string{
		"/v1/completions":      texts + "prompt echo",
		"/v1/chat/completions": texts + turns + "max_completion_tokens top_logprobs include_reasoning parallel_tool_calls",
		"/v1/embeddings":       "model input encoding_format dimensions add_special_tokens truncate_prompt_tokens",
		"/tokenize":            "model prompt add_special_tokens return_token_strs truncate_prompt_tokens " + turns,
		"/detokenize":          "model tokens",
		"/apply-template":      "model " + turns,
		"/v1/responses": sampling + "input instructions previous_response_id max_output_tokens max_tool_calls metadata parallel_tool_calls tools tool_choice text " +
			"reasoning include top_logprobs truncation store stream stream_options safety_identifier prompt_cache_key user chat_template_kwargs",
		"/v1/messages":               sampling + "messages system max_tokens stop_sequences stream thinking tools tool_choice output_config output_format chat_template_kwargs",
		"/v1/batches":                "endpoint input_file_id completion_window metadata",
		"/v1/load_lora_adapter":      "lora_name lora_path",
		"/v1/unload_lora_adapter":    "lora_name",
		"/api/chat":                  "model messages tools stream format think options logprobs top_logprobs",
		"/api/generate":              "model prompt system stream format think options raw",
		"/api/embed":                 "model input dimensions truncate",
		"/api/embeddings":            "model prompt",
		"/api/show":                  "model name verbose",
		"/v1/responses/input_tokens": "model input instructions tools",
	} {
		schema := at(paths, path, "post", "requestBody", "content", "application/json", "schema").(obj)
		fields, _ := schema["properties"].(obj)
		for _, name := range strings.Fields(names) {
			if fields[name] == nil {
				t.Errorf("%s: no field %s among %v", path, name, slices.Sorted(maps.Keys(fields)))
			}
		}
		if fields["truncation_side"] != nil || fields["lora_path"] != nil && path != "/v1/load_lora_adapter" {
			t.Errorf("%s has fields that are a 400", path)
		}
	}
	chatFields := at(paths, chat, "post", "requestBody", "content", "application/json", "schema")
	if got := fmt.Sprint(at(chatFields, "required")); got != "[messages]" {
		t.Errorf("required in chat: %s", got)
	}
	if got := fmt.Sprint(at(chatFields, "properties", "temperature")); got != "map[maximum:2 minimum:0 type:[number null]]" {
		t.Errorf("temperature is %s", got)
	}
	if got := fmt.Sprint(at(paths, "/v1/responses/{id}/input_items", "get", "parameters")); !strings.Contains(got, "name:limit") || !strings.Contains(got, "name:id required:true") {
		t.Errorf("the parameters of input items: %s", got)
	}
}

// TestDocumentHasTheFormatsOfCustomTools: tools were objects of any form.
func TestDocumentHasTheFormatsOfCustomTools(t *testing.T) {
	paths := documentOf(t)["paths"].(obj)
	tools := func(path string) obj {
		return at(paths, path, "post", "requestBody", "content", "application/json", "schema", "properties", "tools").(obj)
	}
	custom := func(syntax string) obj { return obj{"type": "grammar", "syntax": syntax, "definition": "start: \"a\""} }
	chatCustom := func(syntax string) obj {
		format := obj{"type": "grammar", "grammar": obj{"syntax": syntax, "definition": "a"}}
		return obj{"type": "custom", "custom": obj{"name": "f", "description": "d", "format": format}}
	}
	for _, c := range []struct {
		path string
		tool obj
		ok   bool
	}{
		{chat, chatCustom("lark"), true},
		{chat, chatCustom("regex"), true},
		{chat, chatCustom("ebnf"), false},
		{chat, obj{"type": "custom", "custom": obj{"name": "f", "format": custom("lark")}}, true}, // was left out, though it is read
		{chat, obj{"type": "custom", "custom": obj{"name": "f", "format": custom("ebnf")}}, false},
		{chat, obj{"type": "custom", "custom": obj{"name": "f", "format": obj{"type": "text"}}}, true},
		{chat, obj{"type": "custom", "custom": obj{"name": "f"}}, true},
		{chat, obj{"type": "function", "function": obj{"name": "f", "parameters": obj{"type": "object"}, "strict": true}}, true},
		{chat, obj{"type": "function", "name": "f"}, false},
		{responsesPath, obj{"type": "custom", "name": "f", "format": custom("lark")}, true},
		{responsesPath, obj{"type": "custom", "name": "f", "format": custom("ebnf")}, false},
		{responsesPath, obj{"type": "function", "name": "f"}, true},
		{responsesPath, obj{"type": "namespace", "name": "n", "tools": []any{obj{"type": "custom", "name": "f", "format": custom("regex")}}}, true},
		{responsesPath, obj{"type": "web_search", "external_web_access": false}, true},
		{responsesPath, obj{"type": "web_search"}, false},
		{responsesPath, obj{"type": "namespace", "name": "n", "tools": []any{obj{"type": "namespace", "name": "m"}}}, false},
	} {
		if why := breaks(tools(c.path), []any{c.tool}); (why == "") != c.ok {
			t.Errorf("%s: %v: %q", c.path, c.tool, why)
		}
	}
}

// TestAnswersMatchTheirOpenAPISchemas: real answers satisfy the schemas.
func TestAnswersMatchTheirOpenAPISchemas(t *testing.T) {
	paths := documentOf(t)["paths"].(obj)
	s := serveDemo(t)
	for _, c := range []struct {
		method, path, route string
		body                obj
	}{
		{"POST", completions, "", obj{"prompt": "The boat", "max_tokens": 3, "logprobs": 2, "echo": true, "prompt_logprobs": 1, "return_token_ids": true}},
		{"POST", chat, "", obj{"messages": hello, "max_tokens": 3, "logprobs": true, "top_logprobs": 2, "prompt_logprobs": 2}},
		{"POST", "/v1/responses", "", obj{"input": "a", "max_output_tokens": 3}},
		{"POST", "/v1/messages", "", obj{"messages": hello, "max_tokens": 3}},
		{"POST", "/v1/messages/count_tokens", "", obj{"messages": hello}},
		{"POST", "/tokenize", "", obj{"prompt": "a"}},
		{"POST", "/apply-template", "", obj{"messages": hello}},
		{"POST", "/api/chat", "", obj{"messages": hello, "stream": false}},
		{"POST", "/api/show", "", obj{}},
		{"GET", "/v1/models", "", nil}, {"GET", "/api/tags", "", nil}, {"GET", "/api/ps", "", nil}, {"GET", "/api/version", "", nil},
		{"GET", "/health", "", nil}, {"GET", "/version", "", nil}, {"GET", "/plan", "", nil}, {"GET", "/activity", "", nil},
	} {
		status, got := s.object(c.method, c.path, c.body)
		if status != http.StatusOK {
			t.Errorf("%s: status %d: %v", c.path, status, got)
			continue
		}
		schema := at(paths, c.path, strings.ToLower(c.method), "responses", "200", "content", "application/json", "schema").(obj)
		if why := breaks(schema, got); why != "" {
			t.Errorf("%s: %s", c.path, why)
		}
	}
	for path, body := range map[string]obj{chat: {"messages": 1}, "/v1/messages": {"messages": hello}, "/api/chat": {"messages": 1}} {
		status, got := s.object("POST", path, body)
		schema := at(paths, path, "post", "responses", "default", "content", "application/json", "schema").(obj)
		if why := breaks(schema, got); status != http.StatusBadRequest || why != "" {
			t.Errorf("an error of %s, %d: %s", path, status, why)
		}
	}
	schema := at(paths, chat, "post", "responses", "200", "content", "application/json", "schema").(obj)
	if breaks(schema, obj{"id": "x"}) == "" || breaks(schema, []any{}) == "" {
		t.Error("the schema of chat's answers holds for anything")
	}
}

// breaks says how v breaks a schema of the document, "" if it satisfies it.
func breaks(schema obj, v any) string {
	if alternatives, ok := schema["anyOf"].([]any); ok {
		why := ""
		for _, a := range alternatives {
			w := breaks(a.(obj), v)
			if w == "" {
				return ""
			}
			why += " | " + w
		}
		return "none of" + why
	}
	if want := schema["type"]; want != nil {
		list, several := want.([]any)
		if !several {
			list = []any{want}
		}
		if !slices.ContainsFunc(list, func(kind any) bool { return isOf(kind.(string), v) }) {
			return fmt.Sprintf("got %.60v, want %v", v, list)
		}
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, v) {
		return fmt.Sprintf("got %.60v, want %v", v, values)
	}
	switch v := v.(type) {
	case []any:
		items, _ := schema["items"].(obj)
		for i, e := range v {
			if w := breaks(items, e); w != "" {
				return fmt.Sprintf("[%d]: %s", i, w)
			}
		}
	case obj:
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return fmt.Sprintf("no %v", name)
			}
		}
		properties, _ := schema["properties"].(obj)
		more, _ := schema["additionalProperties"].(obj)
		for name, e := range v {
			of, known := properties[name].(obj)
			if !known {
				if of = more; more == nil && properties != nil {
					return "unknown field " + name
				}
			}
			if w := breaks(of, e); w != "" {
				return name + ": " + w
			}
		}
	}
	return ""
}

// isOf reports whether v is of a type of JSON Schema.
func isOf(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case json.Number:
		_, err := v.Int64()
		return kind == "number" || kind == "integer" && err == nil
	case []any:
		return kind == "array"
	}
	return kind == "object"
}
