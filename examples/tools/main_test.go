package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

// TestExample: the demo model is made to call with arguments of the schema, gets the result of its call, and answers.
func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "call    weather {") || !strings.HasPrefix(lines[2], "answer  ") {
		t.Fatalf("got\n%s", b.String())
	}
	var asked, got struct {
		City          string
		Days, Celsius int
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[0], "call    weather ")), &asked); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "result  ")), &got); err != nil {
		t.Fatalf("%v:\n%s", err, b.String())
	}
	if got.City != asked.City || got.Days != asked.Days || got.Celsius == 0 {
		t.Errorf("asked for %+v, got %+v", asked, got)
	}
}

// TestAFailedCallIsAnswered: an error of the function goes to the model, and a model that calls for ever ends the loop.
func TestAFailedCallIsAnswered(t *testing.T) {
	var results []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Messages []message }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if last := body.Messages[len(body.Messages)-1]; last.Role == "tool" {
			results = append(results, last.CallID+" "+last.Content)
		}
		_, _ = w.Write([]byte(`{"choices": [{"message": {"role": "assistant", "content": null,
			"tool_calls": [{"id": "a1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\", \"days\": 2}"}}]}}]}`))
	}))
	defer s.Close()
	err := client{s.URL, ""}.loop(t.Context(), &bytes.Buffer{}, "Rome?", "auto")
	if err == nil || len(results) != mostTurns-1 || !strings.HasPrefix(results[0], "a1 error: no forecast") {
		t.Errorf("got %v, %q", err, results)
	}
}
