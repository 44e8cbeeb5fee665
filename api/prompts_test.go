package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// TestAPromptThatCannotFitIsNotTokenized: megabytes took seconds, and a word of that
// size gigabytes, before they were refused.
func TestAPromptThatCannotFitIsNotTokenized(t *testing.T) {
	s := serveDemo(t)
	for name, text := range map[string]string{
		"words":    strings.Repeat("one word and another. ", 300_000),
		"one word": strings.Repeat("a", 7_000_000),
	} {
		for path, body := range map[string]obj{
			completions:      {"prompt": text},
			chat:             {"messages": []obj{{"role": "user", "content": text}}},
			"/v1/embeddings": {"input": text},
		} {
			status, got := s.object("POST", path, body)
			param := map[string]string{completions: "prompt", chat: "messages", "/v1/embeddings": "input"}[path]
			t.Logf("%s, %s: %v", path, name, at(got, "error", "message"))
			checkError(t, status, got, 400, param, "context_length_exceeded", "your prompt has at least ")
		}
	}
}

// TestTokenizingEndsWithTheRequest: a client that has gone away left its text behind, and a
// processor to it.
func TestTokenizingEndsWithTheRequest(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Encode(ctx, strings.Repeat("one word and another. ", 500), false); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestDetokenizeNamesUnknownIDs: they were left out without a word.
func TestDetokenizeNamesUnknownIDs(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	s := serve(t, m)
	status, got := s.object("POST", "/detokenize", obj{"tokens": []int{5, 6, m.Tokenizer.VocabSize()}})
	checkError(t, status, got, 400, "tokens", nil, "tokens[2] is ")
	if status, text := s.object("POST", "/detokenize", obj{"tokens": []int{}}); status != 200 || text["prompt"] != "" {
		t.Errorf("no tokens: status %d, %v", status, text)
	}
}

// TestAListOfIDsBeyondTheContextIsTooLong: a list of millions of ids was a 413, as decoding it takes
// more memory than there is for requests.
func TestAListOfIDsBeyondTheContextIsTooLong(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	ids := "[" + strings.Repeat("1,", 5_000_000) + "1]"
	for path, param := range map[string]string{completions: "prompt", "/v1/embeddings": "input"} {
		for _, list := range []string{ids, "[[1]," + ids + "]"} {
			status, got := s.object("POST", path, `{"`+param+`":`+list+`}`)
			checkError(t, status, got, 400, param, "context_length_exceeded", "your prompt has at least 5000001")
		}
	}
}

// TestARefusalIsTheTextOfItsMessage: a part with a refusal was a 400, and the model saw an empty message for the field.
func TestARefusalIsTheTextOfItsMessage(t *testing.T) {
	s := serve(t, generatetest.Speaking(t, generatetest.Speaker{Template: `{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}`}, engine.Options{}))
	for _, c := range []struct {
		message obj
		want    string
	}{
		{obj{"role": "assistant", "content": nil, "refusal": "No."}, "No."},
		{obj{"role": "assistant", "refusal": "No."}, "No."},
		{obj{"role": "assistant", "content": "Yes.", "refusal": nil}, "Yes."},
		{obj{"role": "assistant", "content": []obj{{"type": "text", "text": "Well. "}, {"type": "refusal", "refusal": "No."}}}, "Well. \nNo."},
	} {
		status, o := s.object("POST", "/apply-template", obj{"messages": []obj{{"role": "user", "content": "Hi"}, c.message, {"role": "user", "content": "Why?"}}})
		if want := "[user]Hi[assistant]" + c.want + "[user]Why?"; status != 200 || o["prompt"] != want {
			t.Errorf("%v: %d %v, want %q", c.message, status, o, want)
		}
	}
	for at, message := range map[string]obj{
		"messages[0].content[0].type": {"role": "user", "content": []obj{{"type": "refusal", "refusal": "No."}}},
		"messages[0].content[0].text": {"role": "assistant", "content": []obj{{"type": "refusal", "refusal": 5}}},
	} {
		if status, o := s.object("POST", "/apply-template", obj{"messages": []obj{message}}); status != 400 || fmt.Sprint(o) == "" || !strings.Contains(fmt.Sprint(o), at) {
			t.Errorf("%v: %d %v", message, status, o)
		}
	}
}
