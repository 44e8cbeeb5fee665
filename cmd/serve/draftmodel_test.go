package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// guessed starts a server that answers three requests with the given prompt, and returns its answers and how many
// guesses were right in them. A draft model is asked for guesses only once its weights are read, which happens in
// the background and may take longer than the requests (TestADraftModelOfTheServer, on a busy machine), so the
// requests are made anew until so many guesses are right, or often.
func guessed(t *testing.T, right float64, prompt string, args ...string) (answers string, accepted float64) {
	t.Helper()
	p := start(t, args...)
	defer func() { _ = p.Process.Kill(); <-p.end }()
	for range 50 {
		before := p.metric(t, `vllm:spec_decode_num_accepted_tokens_total\{.*\}`)
		var all []string
		for i := range 3 {
			status, r := p.ask(t, "POST", "/v1/completions", fmt.Sprintf(`{%s, "max_tokens": 40, "seed": 5, "temperature": 0.%d}`, fmt.Sprintf(prompt, 50+i), i*4))
			if status != 200 {
				t.Fatalf("%d %v\n%s", status, r, p.log)
			}
			all = append(all, fmt.Sprint(r["choices"]))
		}
		answers = strings.Join(all, "\n")
		if accepted = p.metric(t, `vllm:spec_decode_num_accepted_tokens_total\{.*\}`) - before; accepted >= right {
			break
		}
	}
	return answers, accepted
}

// TestADraftModelOfTheServer: with --draft answers are those without, within one limit of memory, and
// tokens are guessed by the draft model.
func TestADraftModelOfTheServer(t *testing.T) {
	answer := func(right float64, args ...string) (string, float64) {
		return guessed(t, right, `"prompt": [1, %d, 77, 300]`, append(args, "--max-model-len", "600")...)
	}
	want, right := answer(0, "--draft-tokens", "0")
	if right != 0 {
		t.Errorf("%v guesses with --draft-tokens 0", right)
	}
	for _, args := range [][]string{
		{"--draft", "self", "--draft-tokens", "4"},
		{"--draft", "self", "--draft-tokens", "4", "--max-memory", "cpu=400MB", "--strict-memory"},
		{"--draft", demoOnDisk(t), "--draft-tokens", "4", "--device-map", "disk"},
		{"--draft", "self", "--model", demoOnDisk(t), "--draft-tokens", "4", "--device-map", "disk"},
		{"--draft", "self", "--model", demoOnDisk(t), "--draft-tokens", "4", "--max-memory", "cpu=156MiB"},
	} {
		if got, right := answer(1, args...); got != want || right == 0 {
			t.Errorf("%v: %v guesses were right;\n%s\nwant\n%s", args, right, got, want)
		}
	}
}

// TestMultiTokenPredictionOfTheServer: with --draft mtp answers of a model are those without, within a limit of
// memory, and its module guesses tokens that the text does not tell.
func TestMultiTokenPredictionOfTheServer(t *testing.T) {
	for _, model := range []string{"deepseek_v3", "deepseek_v3_two", "qwen3_next"} {
		answer := func(right float64, args ...string) (string, float64) {
			return guessed(t, right, `"n": 2, "prompt": [1, %d, 17, 30]`, append(args, "--model", golden.OwnMTP(t, model))...)
		}
		want, _ := answer(0, "--draft-tokens", "0")
		_, fromText := answer(0, "--draft-tokens", "4")
		got, right := answer(fromText+20, "--draft", "mtp", "--draft-tokens", "4", "--max-memory", "cpu=400MB", "--strict-memory")
		if got != want || right < fromText+20 {
			t.Errorf("%s: %v guesses were right, and %v of the text's own;\n%s\nwant\n%s", model, right, fromText, got, want)
		}
	}
}

// The log says that a checkpoint has a module that is not read, of a model that has one.
func TestModulesThatAreNotReadAreNoted(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"--model", golden.OwnMTP(t, "qwen3_5")}, true},
		{[]string{"--model", golden.OwnMTP(t, "qwen3_5"), "--draft", "mtp"}, false},
		{nil, false},
	} {
		p := start(t, c.args...)
		if status, r := p.ask(t, "POST", "/v1/completions", `{"prompt": [1, 2], "max_tokens": 1}`); status != 200 {
			t.Errorf("%d %v", status, r)
		}
		_ = p.Process.Kill()
		<-p.end
		if got := strings.Contains(fmt.Sprint(p.log), "which are not read: --draft mtp"); got != c.want {
			t.Errorf("%v: noted: %v, want %v\n%s", c.args, got, c.want, p.log)
		}
	}
}

// Draft models that cannot be are refused at the start.
func TestDraftModelsThatCannotBe(t *testing.T) {
	other := demoOnDisk(t)
	file := filepath.Join(other, "tokenizer.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tokenizer map[string]any
	if err := json.Unmarshal(b, &tokenizer); err != nil {
		t.Fatal(err)
	}
	vocab := tokenizer["model"].(map[string]any)["vocab"].(map[string]any)
	for token, id := range vocab {
		if n := id.(float64); n >= 300 { // its ids in another order
			vocab[token] = 300 + float64(len(vocab)-1) - n
		}
	}
	if b, err = json.Marshal(tokenizer); err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []misuse{
		{"--draft nowhere", 2, "nowhere"},
		{"--draft self --models-dir " + t.TempDir(), 2, "--model"},
		{"--draft self --draft-tokens 0", 2, "leave one of them out"},
		{"--draft " + other, 2, "another vocabulary"},
		{"--draft mtp", 2, "multi-token prediction"},
		{"--draft self --max-memory cpu=1MB", 2, "--draft self"},
		{"--draft self --model a=" + demoOnDisk(t) + " --model b=" + demoOnDisk(t), 2, "one model"},
	} {
		m.args += " --port 0"
		m.check(t)
	}
}

// TestMultiTokenPredictionReadsLongPrompts: the module guesses from a prompt that is longer than the logits of a pass.
func TestMultiTokenPredictionReadsLongPrompts(t *testing.T) {
	dir := golden.OwnMTP(t, "recall")
	var f struct {
		Prompts [][]int32 `json:"prompts"`
	}
	golden.JSON(t, filepath.Join(dir, "prompts.json"), &f)
	right := func(args ...string) (answers []string, accepted float64) {
		p := start(t, append(args, "--model", dir, "--draft-tokens", "1")...)
		defer func() { _ = p.Process.Kill(); <-p.end }()
		for _, prompt := range f.Prompts {
			pairs, first := prompt[:len(prompt)-1], prompt[len(prompt)-1]
			body, _ := json.Marshal(map[string]any{"prompt": append(append(slices.Clone(pairs), pairs...), first), "max_tokens": 30, "temperature": 0})
			status, r := p.ask(t, "POST", "/v1/completions", string(body))
			if status != 200 {
				t.Fatalf("%d %v\n%s", status, r, p.log)
			}
			answers = append(answers, fmt.Sprint(r["choices"]))
		}
		return answers, p.metric(t, `vllm:spec_decode_num_accepted_tokens_total\{.*\}`)
	}
	want, _ := right()
	var accepted float64
	for range 5 { // the module is read in the background: on a busy machine it may miss the first prompts
		var got []string
		if got, accepted = right("--draft", "mtp"); !slices.Equal(got, want) {
			t.Errorf("%v\nwant\n%v", got, want)
		}
		if accepted >= 150 { // 168, and 124 if it reads the last tokens of each prompt only
			return
		}
	}
	t.Errorf("%v guesses were right, want 150 at least", accepted)
}
