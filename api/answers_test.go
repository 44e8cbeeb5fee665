package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// answers posts a body and returns the choices.
func (s *server) answers(path string, body obj) []any {
	s.t.Helper()
	status, got := s.object("POST", path, body)
	if status != 200 {
		s.t.Fatalf("status %d: %v", status, got)
	}
	return got["choices"].([]any)
}

// joined puts a stream's chunks together: texts by choice, and how each ended.
func joined(t *testing.T, data []string) (texts []string, finishes []any) {
	t.Helper()
	for _, d := range data[:len(data)-1] {
		for _, c := range parse(t, d)["choices"].([]any) {
			i := int(mustInt(t, at(c, "index")))
			for len(texts) <= i {
				texts, finishes = append(texts, ""), append(finishes, nil)
			}
			for _, v := range []any{at(c, "text"), at(c, "delta", "content")} {
				text, _ := v.(string)
				texts[i] += text
			}
			finishes[i] = at(c, "finish_reason")
		}
	}
	return texts, finishes
}

func mustInt(t *testing.T, v any) int64 {
	t.Helper()
	n, err := v.(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStreamsEqualWholeAnswers compares streams with whole answers.
func TestStreamsEqualWholeAnswers(t *testing.T) {
	s := serveDemo(t)
	for _, c := range []struct {
		name, path string
		body       obj
	}{
		{"completion", completions, obj{"prompt": "The boat", "max_tokens": 20, "temperature": 0}},
		{"ids", completions, obj{"prompt": []int{10, 20, 30}, "max_tokens": 20, "temperature": 0, "ignore_eos": true}},
		{"sampled", completions, obj{"prompt": "The boat", "max_tokens": 20, "seed": 11, "n": 3}},
		{"prompts", completions, obj{"prompt": []string{"The boat", "A"}, "max_tokens": 8, "seed": 11, "n": 2, "echo": true}},
		{"echo", completions, obj{"prompt": "The boat", "max_tokens": 5, "seed": 3, "echo": true, "logprobs": 1}},
		{"stop", completions, obj{"prompt": "The boat", "max_tokens": 60, "seed": 5, "stop": []string{"e", "o"}}},
		{"chat", chat, obj{"messages": hello, "max_tokens": 20, "seed": -4}},
		{"chat choices", chat, obj{"messages": hello, "max_completion_tokens": 12, "seed": 9, "n": 2, "logprobs": true}},
		{"penalties", chat, obj{"messages": hello, "max_tokens": 20, "temperature": 0, "presence_penalty": 1.5, "frequency_penalty": 0.5,
			"repetition_penalty": 1.2, "min_p": 0.1, "top_k": 40, "top_p": 0.9, "min_tokens": 4, "logit_bias": obj{"100": 5, "7": -100}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			want := s.answers(c.path, maps.Clone(c.body))
			texts, finishes := joined(t, s.stream(c.path, maps.Clone(c.body)))
			if len(texts) != len(want) {
				t.Fatalf("%d choices streamed, %d at once", len(texts), len(want))
			}
			for i, w := range want {
				text := at(w, "text")
				if text == nil {
					text = at(w, "message", "content")
				}
				if texts[i] != text || finishes[i] != at(w, "finish_reason") {
					t.Errorf("choice %d: %q, %v; at once %q, %v", i, texts[i], finishes[i], text, at(w, "finish_reason"))
				}
			}
		})
	}
}

func TestSeedsAndZeroTemperature(t *testing.T) {
	s := serveDemo(t)
	body := obj{"prompt": "The boat", "max_tokens": 16, "seed": 1, "temperature": 1}
	first, again := s.answers(completions, body), s.answers(completions, body)
	if !reflect.DeepEqual(first, again) {
		t.Errorf("seed 1 gives %v and %v", first, again)
	}
	body["seed"] = 2
	if other := s.answers(completions, body); at(other, 0, "text") == at(first, 0, "text") {
		t.Errorf("seeds 1 and 2 both give %v", at(first, 0, "text"))
	}
	greedy := obj{"prompt": "The boat", "max_tokens": 16, "temperature": 0}
	want := at(s.answers(completions, greedy), 0, "text")
	if got := at(s.answers(completions, obj{"prompt": "The boat", "max_tokens": 16, "top_p": 0}), 0, "text"); got != want {
		t.Errorf("top_p 0 gives %q, want the best: %q", got, want)
	}
}

// said is a server whose model always answers text.
func said(t *testing.T, text string) (*server, *generate.Model, []int32) {
	words := generatetest.WithText(t, "")
	ids, err := words.Encode(t.Context(), text, false)
	if err != nil {
		t.Fatal(err)
	}
	m := generatetest.Saying(t, &enginetest.Model{}, ids, engine.Options{})
	return serve(t, m), m, ids
}

func TestCompletionLogProbs(t *testing.T) {
	s, m, ids := said(t, "é over the river")
	prompt := "The boat"
	c := s.answers(completions, obj{"prompt": prompt, "max_tokens": len(ids), "logprobs": 1, "echo": true, "add_special_tokens": false})[0]
	if got := at(c, "text"); got != prompt+"é over the river" {
		t.Fatalf("text %q", got)
	}
	tokens := at(c, "logprobs", "tokens").([]any)
	offsets := at(c, "logprobs", "text_offset").([]any)
	values := at(c, "logprobs", "token_logprobs").([]any)
	top := at(c, "logprobs", "top_logprobs").([]any)
	if len(tokens) != len(offsets) || len(tokens) != len(values) || len(tokens) != len(top) {
		t.Fatalf("%d tokens, %d offsets, %d values, %d top", len(tokens), len(offsets), len(values), len(top))
	}
	if values[0] != nil || top[0] != nil || values[1] == nil || top[1] == nil {
		t.Errorf("the first of the prompt: %v, %v; the next: %v, %v", values[0], top[0], values[1], top[1])
	}
	promptIDs, err := m.Encode(t.Context(), prompt, false)
	if err != nil {
		t.Fatal(err)
	}
	runes, at0 := []rune(prompt+"é over the river"), 0
	for i, id := range slices.Concat(promptIDs, ids) {
		text, _, whole := m.TokenText(id)
		if !whole {
			text = "bytes:" + text
		} else if got := string(runes[mustInt(t, offsets[i]):][:len([]rune(text))]); got != text {
			t.Errorf("token %d, %q, is said to begin before %q", i, text, got)
		}
		if tokens[i] != text {
			t.Errorf("token %d is %q, want %q", i, tokens[i], text)
		}
		at0 += len(text)
	}
	for i := len(promptIDs); i < len(top); i++ {
		if _, there := top[i].(obj)[tokens[i].(string)]; !there {
			t.Errorf("token %d, %q, is not among %v", i, tokens[i], top[i])
		}
	}
}

func TestLogProbsZeroShowsTheChosen(t *testing.T) {
	s, _, _ := said(t, "river")
	c := s.answers(completions, obj{"prompt": "a", "max_tokens": 1, "logprobs": 0})[0]
	if top := at(c, "logprobs", "top_logprobs", 0).(obj); len(top) != 1 {
		t.Errorf("top_logprobs %v", top)
	}
}

func TestChatLogProbsHaveBytes(t *testing.T) {
	s, m, ids := said(t, "世 boat")
	c := s.answers(chat, obj{"messages": hello, "max_tokens": len(ids), "logprobs": true, "top_logprobs": 2})[0]
	var bytes []byte
	content := at(c, "logprobs", "content").([]any)
	for i, tok := range content {
		for _, b := range at(tok, "bytes").([]any) {
			bytes = append(bytes, byte(mustInt(t, b)))
		}
		text, _, _ := m.TokenText(ids[i])
		if at(tok, "token") != text || len(at(tok, "top_logprobs").([]any)) != 2 {
			t.Errorf("token %d: %v", i, tok)
		}
	}
	if string(bytes) != "世 boat" || at(c, "message", "content") != "世 boat" {
		t.Errorf("bytes %q, content %q", bytes, at(c, "message", "content"))
	}
	if v, there := at(c, "logprobs").(obj)["refusal"]; v != nil || !there {
		t.Error("logprobs.refusal is not null")
	}
}

func TestTokenIDsWithoutATokenizer(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	body := obj{"prompt": []int{5, 6}, "max_tokens": 4, "temperature": 0, "ignore_eos": true, "return_token_ids": true, "logprobs": 2, "echo": true}
	c := s.answers(completions, body)[0]
	ids := at(c, "token_ids").([]any)
	if at(c, "text") != "" || len(ids) != 4 || fmt.Sprint(at(c, "prompt_token_ids")) != "[5 6]" {
		t.Fatalf("choice %v", c)
	}
	for i, id := range ids {
		if got, want := at(c, "logprobs", "tokens", i+2), fmt.Sprintf("token_id:%v", id); got != want {
			t.Errorf("token %d is %q, want %q", i, got, want)
		}
	}
	var streamed, prompt []any
	for _, d := range s.stream(completions, maps.Clone(body)) {
		if d != "[DONE]" {
			chunk := parse(t, d)
			more, _ := at(chunk, "choices", 0, "token_ids").([]any)
			streamed = append(streamed, more...)
			more, _ = at(chunk, "choices", 0, "prompt_token_ids").([]any)
			prompt = append(prompt, more...)
		}
	}
	if !reflect.DeepEqual(streamed, ids) || fmt.Sprint(prompt) != "[5 6]" {
		t.Errorf("streamed %v after %v, at once %v", streamed, prompt, ids)
	}
}

func TestTokenIDsOfAChat(t *testing.T) {
	s, m, ids := said(t, "over the river")
	c := s.answers(chat, obj{"messages": hello, "max_tokens": len(ids), "return_token_ids": true})[0]
	if fmt.Sprint(at(c, "token_ids")) != fmt.Sprint(ids) {
		t.Errorf("ids %v, want %v", at(c, "token_ids"), ids)
	}
	_, tokenized := s.object("POST", "/tokenize", obj{"messages": hello, "return_token_strs": true})
	if fmt.Sprint(tokenized["tokens"]) != fmt.Sprint(at(c, "prompt_token_ids")) {
		t.Errorf("tokenized %v, prompt %v", tokenized["tokens"], at(c, "prompt_token_ids"))
	}
	if first := at(tokenized, "token_strs", 0); first != m.Chat.SpecialToken("bos_token") {
		t.Errorf("the prompt begins with %v", first)
	}
	_, text := s.object("POST", "/detokenize", obj{"tokens": ids})
	if text["prompt"] != "over the river" {
		t.Errorf("detokenized %v", text)
	}
}

// TestUsage: a prompt counts once however many choices it has, and what was there before
// is said to be.
func TestUsage(t *testing.T) {
	s, _, ids := said(t, "over the river")
	body := obj{"prompt": slices.Repeat([]int{9}, 30), "max_tokens": len(ids), "n": 3}
	for i, cached := range []bool{false, true} {
		_, got := s.object("POST", completions, body)
		u := got["usage"].(obj)
		want := fmt.Sprintf("30 %d %d", 3*len(ids), 30+3*len(ids))
		if have := fmt.Sprint(u["prompt_tokens"], " ", u["completion_tokens"], " ", u["total_tokens"]); have != want {
			t.Errorf("usage %d: %s, want %s", i, have, want)
		}
		if n := mustInt(t, at(u, "prompt_tokens_details", "cached_tokens")); cached != (n > 0) {
			t.Errorf("usage %d: %d tokens were cached", i, n)
		}
	}
}

func TestTextParts(t *testing.T) {
	s := serveDemo(t)
	ask := func(content any) string {
		_, got := s.object("POST", "/tokenize", obj{"messages": []obj{{"role": "user", "content": content}}})
		return fmt.Sprint(got["tokens"])
	}
	parts := []obj{{"type": "text", "text": "over"}, {"type": "text", "text": "there"}}
	if got, want := ask(parts), ask("over\nthere"); got != want {
		t.Errorf("ids %v, want %v", got, want)
	}
}

func TestContinueFinalMessage(t *testing.T) {
	s, m, ids := said(t, " boat")
	messages := []obj{{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The"}}
	c := s.answers(chat, obj{"messages": messages, "continue_final_message": true, "max_tokens": len(ids), "return_token_ids": true})[0]
	var prompt []int32
	for _, id := range at(c, "prompt_token_ids").([]any) {
		prompt = append(prompt, int32(mustInt(t, id)))
	}
	if text := m.Tokenizer.Decode(prompt, false); !strings.HasSuffix(text, "The") {
		t.Errorf("the prompt is %q", text)
	}
	if at(c, "message", "content") != " boat" {
		t.Errorf("content %q", at(c, "message", "content"))
	}
}

// TestDefaultsOfTheModel: generation_config.json speaks where the request is silent.
func TestDefaultsOfTheModel(t *testing.T) {
	s, m, ids := said(t, "over the river and far away")
	zero, most := 0.0, 2
	g := *m.Generation
	g.Temperature, g.MaxNewTokens = &zero, &most
	m.Generation = &g
	_, got := s.object("POST", chat, obj{"messages": hello})
	if n := mustInt(t, at(got, "usage", "completion_tokens")); n != 2 || at(got, "choices", 0, "finish_reason") != "length" {
		t.Errorf("%d tokens, %v", n, at(got, "choices", 0))
	}
	if _, got = s.object("POST", chat, obj{"messages": hello, "max_tokens": 4}); mustInt(t, at(got, "usage", "completion_tokens")) != 4 {
		t.Errorf("max_tokens 4 of %d: %v", len(ids), got["usage"])
	}
	if _, got = s.object("POST", completions, obj{"prompt": "a"}); mustInt(t, at(got, "usage", "completion_tokens")) != 16 {
		t.Errorf("a completion without max_tokens: %v", got["usage"])
	}
}

func TestScoringAPrompt(t *testing.T) {
	s := serveDemo(t)
	_, got := s.object("POST", completions, obj{"prompt": "The boat on the river", "max_tokens": 0, "echo": true, "logprobs": 1})
	if at(got, "choices", 0, "text") != "The boat on the river" || mustInt(t, at(got, "usage", "completion_tokens")) != 0 {
		t.Errorf("%v", got)
	}
	values := at(got, "choices", 0, "logprobs", "token_logprobs").([]any)
	if int64(len(values)) != mustInt(t, at(got, "usage", "prompt_tokens")) || values[0] != nil || slices.Contains(values[1:], nil) {
		t.Errorf("%d values: %v", len(values), values)
	}
}

func TestModels(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{MaxLen: 77}, engine.Options{})
	m.Name = "org/name.v1"
	s := serve(t, m)
	for _, path := range []string{"/v1/models/org/name.v1", "/v1/models/org%2Fname.v1"} {
		status, got := s.object("GET", path, nil)
		if status != 200 || got["id"] != "org/name.v1" || mustInt(t, got["max_model_len"]) != 77 || mustInt(t, got["created"]) != 1_700_000_000 {
			t.Errorf("%s: %d, %v", path, status, got)
		}
	}
	if status, got := s.object("POST", completions, obj{"model": "org/name.v1", "prompt": []int{1}, "max_tokens": 1}); status != 200 {
		t.Errorf("status %d: %v", status, got)
	}
}
