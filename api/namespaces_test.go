package api_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
)

// spaced is a request whose call is of a function in a namespace, with a web search that fetches nothing, as Codex sends it.
func spaced() obj {
	schema := obj{"type": "object", "properties": obj{"city": obj{"enum": []string{"Oslo"}}}, "required": []string{"city"}, "additionalProperties": false}
	f := func(name string) obj {
		return obj{"type": "function", "name": name, "description": "d", "strict": false, "parameters": schema}
	}
	return obj{"input": "Hi", "temperature": 1, "seed": 3, "parallel_tool_calls": false, "tools": []obj{f("weather"), {"type": "namespace", "name": "past", "description": "Of earlier days.", "tools": []obj{f("weather"), f("rain")}},
		{"type": "web_search", "external_web_access": false}}, "tool_choice": obj{"type": "function", "namespace": "past", "name": "weather"}}
}

// TestFunctionsOfNamespaces: Codex got a 400 for them. Calls have the namespace in addition to the name, in events,
// in stored responses and in what clients send back.
func TestFunctionsOfNamespaces(t *testing.T) {
	for name, template := range notations {
		t.Run(name, func(t *testing.T) { checkNamespaces(t, serve(t, randomCaller(t, template))) })
	}
}

func checkNamespaces(t *testing.T, s *server) {
	t.Helper()
	events := s.events(spaced())
	r := at(events[len(events)-1].data, "response").(map[string]any)
	output := r["output"].([]any)
	call := at(output, len(output)-1).(map[string]any)
	var arguments obj
	if call["type"] != "function_call" || call["namespace"] != "past" || call["name"] != "weather" ||
		json.Unmarshal([]byte(call["arguments"].(string)), &arguments) != nil || arguments["city"] != "Oslo" {
		t.Fatalf("got %v", output)
	}
	if tools := r["tools"].([]any); len(tools) != 2 || at(tools, 1, "type") != "namespace" || at(tools, 1, "tools", 1, "name") != "rain" || at(tools, 1, "parameters") != nil {
		t.Errorf("tools %v", tools)
	}
	id := r["id"].(string)
	if again := s.readEvents(s.doStream("GET", responsesPath+"/"+id+"?stream=true"), 0); !reflect.DeepEqual(again, events) {
		t.Errorf("the events that were stored are\n%v, want\n%v", again, events)
	}
	next := spaced()
	delete(next, "tool_choice")
	result := obj{"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
	prompt := func(more obj) any {
		t.Helper()
		body := maps.Clone(next)
		maps.Copy(body, more)
		status, count := s.object("POST", responsesPath+"/input_tokens", body)
		if status != 200 {
			t.Fatalf("%d %v", status, count)
		}
		return count["input_tokens"]
	}
	items := append(append([]any{obj{"role": "user", "content": "Hi"}}, output...), result)
	want := prompt(obj{"previous_response_id": id, "input": []any{result}})
	if got := prompt(obj{"input": items}); got != want {
		t.Errorf("items make a prompt of %v tokens, want %v", got, want)
	}
	delete(call, "namespace")
	if got := prompt(obj{"input": items}); got == want {
		t.Error("the prompt does not show the namespace of a call")
	}
}

// TestNamespacesNameWhatIsWrong: in them, too.
func TestNamespacesNameWhatIsWrong(t *testing.T) {
	s := serve(t, hermes(t))
	inner := func(tools ...obj) []obj { return []obj{{"type": "namespace", "name": "a", "tools": tools}} }
	for name, c := range map[string]struct {
		tools          []obj
		param, message string
	}{
		"a search of the web": {[]obj{{"type": "web_search"}}, "tools[0].type", "web_search"},
		"no tools":            {[]obj{{"type": "namespace", "name": "a"}}, "tools[0].tools", "Missing"},
		"no name":             {[]obj{{"type": "namespace", "tools": []obj{}}}, "tools[0].name", "Missing"},
		"a hosted tool":       {inner(obj{"type": "mcp", "name": "f"}), "tools[0].tools[0].type", "mcp"},
		"a custom tool":       {inner(obj{"type": "custom"}), "tools[0].tools[0].name", "Missing"},
		"the same name":       {append(inner(obj{"type": "function", "name": "f"}), obj{"type": "function", "name": "a__f"}), "tools[1].name", "a__f"},
		"the same function":   {inner(obj{"type": "function", "name": "f"}, obj{"type": "function", "name": "f"}), "tools[0].tools[1].name", "a__f"},
	} {
		status, e := s.object("POST", responsesPath, obj{"input": "Hi", "tools": c.tools})
		if text, _ := at(e, "error", "message").(string); status != 400 || at(e, "error", "param") != c.param || !strings.Contains(text, c.message) {
			t.Errorf("%s: %d %v, want 400 of %s", name, status, e, c.param)
		}
	}
}
