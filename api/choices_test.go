package api_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
)

// randomCaller is a model of random logits whose template writes calls in a notation.
func randomCaller(t *testing.T, template string) *generate.Model {
	t.Helper()
	m := generatetest.Speaking(t, generatetest.Speaker{Template: template, Special: []string{"<think>", "</think>"}}, engine.Options{})
	e := engine.New(&enginetest.Model{Width: m.Tokenizer.VocabSize(), MaxLen: 8192}, engine.Options{})
	t.Cleanup(e.Close)
	holder.SetEngine(m, e)
	return m
}

// choice is all that a client has of a choice.
type choice struct {
	spoken
	IDs, Logprobs []any
}

// wholeChoices reads an answer.
func wholeChoices(t *testing.T, answer map[string]any) (all []choice, usage any) {
	t.Helper()
	for i, c := range answer["choices"].([]any) {
		if n := mustInt(t, at(c, "index")); n != int64(i) {
			t.Errorf("choice %d has the index %d", i, n)
		}
		ids, _ := at(c, "token_ids").([]any)
		logprobs, _ := at(c, "logprobs", "content").([]any)
		all = append(all, choice{whole(t, c), ids, logprobs})
	}
	return all, answer["usage"]
}

// piecedChoices puts the choices of a stream together, each from its own chunks.
func piecedChoices(t *testing.T, data []string, n int) (all []choice, usage any) {
	t.Helper()
	all = make([]choice, n)
	chunks := make([][]string, n)
	for _, d := range data[:len(data)-1] {
		chunk := parse(t, d)
		if u := chunk["usage"]; u != nil {
			if usage != nil || len(chunk["choices"].([]any)) != 0 {
				t.Errorf("usage %v in %s", u, d)
			}
			usage = u
		}
		for _, c := range chunk["choices"].([]any) {
			i := mustInt(t, at(c, "index"))
			one := maps.Clone(chunk)
			one["choices"] = []any{c}
			if all[i].Finish != "" {
				t.Errorf("a chunk of choice %d after its end: %s", i, d)
			}
			all[i].Finish, _ = at(c, "finish_reason").(string)
			chunks[i] = append(chunks[i], mustJSON(t, one))
			ids, _ := at(c, "token_ids").([]any)
			logprobs, _ := at(c, "logprobs", "content").([]any)
			all[i].IDs, all[i].Logprobs = append(all[i].IDs, ids...), append(all[i].Logprobs, logprobs...)
		}
	}
	for i := range all {
		all[i].spoken = pieced(t, append(chunks[i], "[DONE]"))
	}
	return all, usage
}

// TestStreamedChoicesWithCallsEqualWholeOnes: several choices of one request with tools, forced and not, cut off and not: each
// has the same calls, ids, log-probabilities and end in a stream as in a whole answer, and so has their usage.
func TestStreamedChoicesWithCallsEqualWholeOnes(t *testing.T) {
	named := obj{"type": "function", "function": obj{"name": "get_time"}}
	for name, template := range notations {
		s := serve(t, randomCaller(t, template))
		for request, more := range map[string]obj{
			"required": {"tool_choice": "required"},
			"named":    {"tool_choice": named},
			"one":      {"tool_choice": "required", "parallel_tool_calls": false},
			"auto":     {},
			"strict":   {"tools": callable(true)},
			"cut off":  {"tool_choice": "required", "max_tokens": 40},
		} {
			t.Run(name+"/"+request, func(t *testing.T) {
				const n = 3
				s.t = t
				body := obj{"messages": askedOnce, "tools": callable(false), "max_tokens": 120, "n": n, "seed": 5, "temperature": 1,
					"logprobs": true, "top_logprobs": 2, "return_token_ids": true}
				maps.Copy(body, more)
				status, answer := s.object("POST", chat, maps.Clone(body))
				if status != 200 {
					t.Fatalf("status %d: %v", status, answer)
				}
				want, wantUsage := wholeChoices(t, answer)
				delete(at(wantUsage, "prompt_tokens_details").(map[string]any), "cached_tokens")
				body["stream_options"] = obj{"include_usage": true}
				got, usage := piecedChoices(t, s.stream(chat, body), len(want))
				for i := range want {
					if !reflect.DeepEqual(got[i], want[i]) {
						t.Errorf("choice %d:\nstreamed %v\nat once  %v", i, got[i], want[i])
					}
					if len(want[i].IDs) == 0 || len(want[i].IDs) != len(want[i].Logprobs) {
						t.Errorf("choice %d: %d ids, %d log-probabilities", i, len(want[i].IDs), len(want[i].Logprobs))
					}
				}
				delete(at(usage, "prompt_tokens_details").(map[string]any), "cached_tokens") // the second finds the first's prompt
				if !reflect.DeepEqual(usage, wantUsage) {
					t.Errorf("usage %v, at once %v", usage, wantUsage)
				}
			})
		}
	}
}

// TestStreamedCallsOfOtherDialectsEqualWholeOnes: forced and free calls of a model of random logits in messages and responses
// are the same in a stream as in a whole answer.
func TestStreamedCallsOfOtherDialectsEqualWholeOnes(t *testing.T) {
	schemas := []obj{{"name": "get_weather", "input_schema": json.RawMessage(weatherSchema)}, {"name": "get_time", "input_schema": json.RawMessage(timeSchema)}}
	var functions []obj
	for _, tool := range callable(false) {
		f := maps.Clone(tool["function"].(obj))
		f["type"] = "function"
		functions = append(functions, f)
	}
	for name, template := range notations {
		s := serve(t, randomCaller(t, template))
		for forced, wants := range map[string][2]any{
			"auto": {obj{"type": "auto"}, "auto"}, "any": {obj{"type": "any"}, "required"},
			"named": {obj{"type": "tool", "name": "get_time"}, obj{"type": "function", "name": "get_time"}},
			"one":   {obj{"type": "any", "disable_parallel_tool_use": true}, "required"},
		} {
			t.Run(name+"/"+forced, func(t *testing.T) {
				s.t = t
				message := hi(obj{"tools": schemas, "tool_choice": wants[0], "max_tokens": 120})
				want := s.message(maps.Clone(message))
				got := assembled(t, s.messageEvents(message))
				for _, m := range []map[string]any{got, want} {
					delete(m, "id")
					m["usage"] = at(m, "usage", "output_tokens")
					for _, block := range m["content"].([]any) {
						delete(block.(map[string]any), "id")
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("message:\nstreamed %v\nat once  %v", got, want)
				}
				response := obj{"input": "Hi", "tools": functions, "tool_choice": wants[1], "parallel_tool_calls": forced != "one", "max_output_tokens": 120, "temperature": 0}
				whole := s.respond(maps.Clone(response))
				events := s.events(response)
				checkDeltas(t, events)
				final := at(events[len(events)-1].data, "response")
				if a, b := saidWithoutIDs(t, final), saidWithoutIDs(t, whole); a != b {
					t.Errorf("response:\nstreamed %s\nat once  %s", a, b)
				}
			})
		}
	}
}

// saidWithoutIDs returns the body of a response without the ids of its items.
func saidWithoutIDs(t *testing.T, response any) string {
	t.Helper()
	output, _ := at(response, "output").([]any)
	for _, item := range output {
		delete(item.(map[string]any), "id")
		delete(item.(map[string]any), "call_id")
	}
	return mustJSON(t, obj{"output": output, "status": at(response, "status"), "incomplete": at(response, "incomplete_details"), "tokens": at(response, "usage", "output_tokens")})
}
