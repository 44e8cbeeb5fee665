package api_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

func TestBadWordsAreNotGenerated(t *testing.T) {
	s := serveDemo(t)
	body := obj{"prompt": "The boat", "max_tokens": 40, "temperature": 0, "logprobs": 0}
	words := strings.Fields(at(s.answers(completions, maps.Clone(body))[0], "text").(string))
	tokens := at(s.answers(completions, maps.Clone(body))[0], "logprobs", "tokens").([]any)
	bad := ""
	for _, w := range words { // one that is a token of its own
		if slices.Contains(tokens, any(" "+w)) {
			bad = w
			break
		}
	}
	if bad == "" {
		t.Fatalf("no word of %q is a token", words)
	}
	body["bad_words"] = []string{bad}
	said := at(s.answers(completions, maps.Clone(body))[0], "logprobs", "tokens").([]any)
	if slices.Contains(said, any(" "+bad)) || slices.Contains(said, any(bad)) || reflect.DeepEqual(said, tokens) {
		t.Errorf("without %q the tokens are %v", bad, said)
	}
	for _, wrong := range []any{"a", []any{nil}, []string{" "}, []string{strings.Repeat("a", 17<<10)}, make([]int, 3)} {
		if status, e := s.object("POST", completions, obj{"prompt": "a", "bad_words": wrong}); status != 400 || at(e, "error", "param") != "bad_words" {
			t.Errorf("%.40v: %d %v", wrong, status, e)
		}
	}
}

func TestPromptsAreTruncated(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{MaxLen: 256}, engine.Options{}))
	ids := make([]int, 600)
	for i := range ids {
		ids[i] = 5 + i%100
	}
	more := obj{"truncate_prompt_tokens": 7, "return_token_ids": true, "max_tokens": 1}
	ask := func(path string, body obj) []any {
		t.Helper()
		maps.Copy(body, more)
		answer := s.answers(path, body)[0]
		list, _ := at(answer, "prompt_token_ids").([]any)
		return list
	}
	if got := fmt.Sprint(ask(completions, obj{"prompt": ids})); got != "["+strings.Trim(fmt.Sprint(ids[593:]), "[]")+"]" {
		t.Errorf("ids were cut to %s", got)
	}
	text := strings.Repeat("the boat on the river ", 100)
	for name, got := range map[string][]any{"text": ask(completions, obj{"prompt": text}), "messages": ask(chat, obj{"messages": []obj{{"role": "user", "content": text}}})} {
		if len(got) != 7 {
			t.Errorf("%s was cut to %v", name, got)
		}
	}
	const prompt = "the river boat on the river"
	_, all := s.object("POST", "/tokenize", obj{"prompt": prompt})
	_, plain := s.object("POST", "/tokenize", obj{"prompt": prompt, "add_special_tokens": false})
	_, cut := s.object("POST", "/tokenize", obj{"prompt": prompt, "truncate_prompt_tokens": 3})
	inner, outer := plain["tokens"].([]any), all["tokens"].([]any)
	own := len(outer) - len(inner) // special tokens stay
	if want := append(slices.Clone(outer[:own]), inner[len(inner)-3+own:]...); !reflect.DeepEqual(cut["tokens"], any(want)) {
		t.Errorf("/tokenize: %v, want %v", cut["tokens"], want)
	}
	more["truncate_prompt_tokens"] = -1
	if got := ask(completions, obj{"prompt": ids}); len(got) != 255 {
		t.Errorf("-1 leaves %d tokens of a context of 256", len(got))
	}
	for _, wrong := range []any{0, -2, "a"} {
		if status, e := s.object("POST", completions, obj{"prompt": "a", "truncate_prompt_tokens": wrong}); status != 400 || at(e, "error", "param") != "truncate_prompt_tokens" {
			t.Errorf("%v: %d %v", wrong, status, e)
		}
	}
}

func TestTokensAreNamedByTheirIDs(t *testing.T) {
	s := serveDemo(t)
	more := obj{"return_tokens_as_token_ids": true, "return_token_ids": true, "max_tokens": 4, "temperature": 0}
	with := func(body obj) obj {
		maps.Copy(body, more)
		return body
	}
	c := s.answers(completions, with(obj{"prompt": "The boat", "logprobs": 1}))[0]
	for i, id := range at(c, "token_ids").([]any) {
		name := fmt.Sprintf("token_id:%v", id)
		if at(c, "logprobs", "tokens", i) != name || at(c, "logprobs", "top_logprobs", i, name) == nil {
			t.Errorf("token %d is called %v, want %s", i, at(c, "logprobs", "tokens", i), name)
		}
	}
	c = s.answers(chat, with(obj{"messages": hello, "logprobs": true, "top_logprobs": 2}))[0]
	for i, id := range at(c, "token_ids").([]any) {
		token := at(c, "logprobs", "content", i)
		if want := fmt.Sprintf("token_id:%v", id); at(token, "token") != want || !strings.HasPrefix(at(token, "top_logprobs", 1, "token").(string), "token_id:") {
			t.Errorf("token %v, want %s", token, want)
		}
	}
}

func TestAModelWithoutFilesHasNoTokenizerInfo(t *testing.T) {
	if status, e := serveDemo(t).object("GET", "/tokenizer_info", nil); status != 404 || !strings.Contains(at(e, "error", "message").(string), "tokenizer_config.json") {
		t.Errorf("%d %v", status, e)
	}
}

// TestTemplatesAreApplied: the text is that whose tokens /tokenize returns.
func TestTemplatesAreApplied(t *testing.T) {
	s := serveDemo(t)
	status, r := s.object("POST", "/apply-template", obj{"messages": hello})
	if prompt, _ := r["prompt"].(string); status != 200 || !strings.Contains(prompt, "Hi") {
		t.Fatalf("%d %v", status, r)
	}
	_, want := s.object("POST", "/tokenize", obj{"messages": hello})
	if _, got := s.object("POST", "/tokenize", obj{"prompt": r["prompt"], "add_special_tokens": false}); !reflect.DeepEqual(got["tokens"], want["tokens"]) {
		t.Errorf("%v, want %v", got, want)
	}
	if status, e := s.object("POST", "/apply-template", obj{}); status != 400 || at(e, "error", "param") != "messages" {
		t.Errorf("%d %v", status, e)
	}
}

// TestAdaptersWithoutAFolderNameTheFlag: POST /v1/load_lora_adapter without --lora-dir was a 404 for an invalid URL.
func TestAdaptersWithoutAFolderNameTheFlag(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for _, path := range []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter"} {
		status, got := s.text("POST", path, map[string]any{"lora_name": "sql", "lora_path": "sql-v2"})
		if status != 404 || !strings.Contains(got, "--lora-dir DIR") {
			t.Errorf("%s: %d %s, want 404 with --lora-dir DIR", path, status, got)
		}
	}
}
