package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
)

// callerConfig is a model that is large enough to learn when to call a tool.
const callerConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 48, "intermediate_size": 96,
 "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3, "max_position_embeddings": 512, "torch_dtype": "float32", "eos_token_id": 4}`

// callerTemplate has the shape of Qwen's and a notation of its own. It reads the content of
// every assistant message and knows no role developer.
const callerTemplate = `{%- if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif -%}
{%- for m in messages -%}
  {%- if m.role == "assistant" -%}
    <|assistant|>{{ m.content.strip() }}
    {%- for c in m.tool_calls or [] -%}[run]{{ c.function.name }}[with]{{ c.function.arguments | tojson }}[/run]{%- endfor -%}<|end|>
  {%- elif m.role == "tool" -%}<|user|>got {{ m.content }}<|end|>
  {%- elif m.role == "user" or m.role == "system" and loop.first -%}<|{{ m.role }}|>{{ m.content }}<|end|>
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}`

type object = map[string]any

var callerTools = []object{{"type": "function", "function": object{"name": "weather", "parameters": object{
	"type": "object", "properties": object{"city": object{"type": "string"}}}}}}

// callerLessons are both legs of a tool loop, as clients write them.
func callerLessons(t *testing.T) string {
	t.Helper()
	call := object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "call_1", "type": "function",
		"function": object{"name": "weather", "arguments": `{"city": "Oslo"}`}}}}
	var b bytes.Buffer
	for i, ask := range []string{"Weather in Oslo?", "How is Oslo?", "Is it cold in Oslo?", "Oslo, please."} {
		for k, result := range []string{"4", "cold", `{"degrees": 4}`} {
			var messages []object
			if system := []string{"", "Be brief.", "You know the weather."}[(i+k)%3]; system != "" {
				messages = append(messages, object{"role": "system", "content": system})
			}
			messages = append(messages, object{"role": "user", "content": ask}, call,
				object{"role": "tool", "tool_call_id": "call_1", "content": result}, object{"role": "assistant", "content": "It is cold."})
			line, err := json.Marshal(object{"tools": callerTools, "messages": messages})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s\n", line)
		}
	}
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestToolLoop trains a tiny model to call a tool, serves it, and runs the loop to its end:
// the call that the server parsed goes back without content, and the model answers.
// scripts/check-tool-loop.sh does the same with real templates, check-clients.sh with
// well-known clients.
func TestToolLoop(t *testing.T) {
	dir, out := modelOf(t, callerConfig), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(callerTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := command(t, "run", dir, "--data", callerLessons(t), "--output", out, "--epochs", "40", "--batch", "4",
		"--learning-rate", "3e-3", "--lr-scheduler", "cosine", "--save-steps=-1")
	if status != 0 {
		t.Fatalf("%d: %s%s", status, stdout, stderr)
	}
	model, err := dispatch.Open(out, dispatch.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	m, err := generate.New(model, generate.Options{Name: "caller"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Chat.UnreadCalls() {
		t.Fatal("the notation was not learned from the template")
	}
	server := httptest.NewServer(api.New(m, api.Options{}))
	defer server.Close()

	messages := []object{{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Weather in Oslo?"}}
	first := complete(t, server.URL, messages)
	calls, _ := first.Message["tool_calls"].([]any)
	if first.Reason != "tool_calls" || len(calls) != 1 {
		t.Fatalf("the first leg calls no tool: %+v", first)
	}
	function := calls[0].(object)["function"].(object)
	if function["name"] != "weather" || function["arguments"] != `{"city": "Oslo"}` {
		t.Errorf("the call is %v", function)
	}
	for name, message := range map[string]object{
		"content null":   {"role": "assistant", "content": nil, "tool_calls": calls},
		"content absent": {"role": "assistant", "tool_calls": calls},
		"its own answer": first.Message,
	} {
		second := complete(t, server.URL, append(messages[:2:2], message, object{"role": "tool", "tool_call_id": calls[0].(object)["id"], "content": "4"}))
		if second.Reason != "stop" || second.Message["content"] != "It is cold." {
			t.Errorf("%s: the second leg gives %+v", name, second)
		}
	}
}

// A choice is an answer of the server.
type choice struct {
	Message object `json:"message"`
	Reason  string `json:"finish_reason"`
}

func complete(t *testing.T, url string, messages []object) choice {
	t.Helper()
	body, err := json.Marshal(object{"model": "caller", "messages": messages, "tools": callerTools, "temperature": 0, "max_tokens": 60})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got struct {
		Choices []choice `json:"choices"`
		Error   any      `json:"error"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("status %d: %v, %v", answer.StatusCode, got.Error, err)
	}
	return got.Choices[0]
}
