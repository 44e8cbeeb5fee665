package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// turnsTemplate renders earlier answers without their thoughts, as Qwen3's template does.
const turnsTemplate = `{%- for m in messages %}<{{ m.role }}>{% if m.role == "assistant" and loop.last %}<think></think>{% endif %}{{ m.content }}</s>
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// TestOneBadRecordEndedARun: a record that cannot be used ended the run. It is skipped with a count
// and the first reason, and --strict-data stops.
func TestOneBadRecordEndedARun(t *testing.T) {
	dir := tinyModel(t)
	config := map[string]string{"chat_template": turnsTemplate}
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "chats.jsonl")
	const chat = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}` + "\n"
	for path, text := range map[string]string{
		filepath.Join(dir, "tokenizer_config.json"): string(b), file: chat + "{\"txt\": \"a typo\"}\n" + chat + "{\"messages\": 3}\n" + chat,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := []string{"run", "--model", dir, "--batch", "1", "--max-steps", "2", "--threads", "1", "--data", file}
	status, _, stderr := command(t, slices.Concat(base, []string{"--output", filepath.Join(t.TempDir(), "out")})...)
	if status != 0 || !strings.Contains(stderr, "skipped=2 of=5") || !strings.Contains(stderr, "line 2: want text") {
		t.Errorf("bad records: %d, %s", status, stderr)
	}
	if !strings.Contains(stderr, "sequences=3") {
		t.Errorf("chats of several turns: %s", stderr)
	}
	all := stderr[strings.Index(stderr, "learned_tokens="):]
	status, _, stderr = command(t, slices.Concat(base, []string{"--output", filepath.Join(t.TempDir(), "out"), "--last-answer"})...)
	if status != 0 || strings.HasPrefix(stderr[strings.Index(stderr, "learned_tokens="):], strings.Fields(all)[0]+" ") {
		t.Errorf("--last-answer learns as much as all answers: %d, %s", status, stderr)
	}
	status, _, stderr = command(t, slices.Concat(base, []string{"--output", filepath.Join(t.TempDir(), "out"), "--strict-data"})...)
	if status != 2 || !strings.Contains(stderr, "chats.jsonl: line 2: want text") {
		t.Errorf("--strict-data: %d, %s", status, stderr)
	}
	if err := os.WriteFile(file, []byte("{}\n[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr = command(t, slices.Concat(base, []string{"--output", filepath.Join(t.TempDir(), "out")})...)
	if status == 0 || !strings.Contains(stderr, "no record of") || !strings.Contains(stderr, "line 1: want text") {
		t.Errorf("only bad records: %d, %s", status, stderr)
	}
}

// TestUnknownScheduleWasFoundAfterTokenising: the name of a schedule was checked after all data was
// read. It is checked before the folder of the model is looked at.
func TestUnknownScheduleWasFoundAfterTokenising(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	args := []string{"run", "--model", missing, "--data", missing, "--output", filepath.Join(t.TempDir(), "out"), "--lr-scheduler"}
	if status, _, stderr := command(t, append(args, "cosin")...); status == 0 || !strings.Contains(stderr, "--lr-scheduler: optim: schedule cosin: unknown name") {
		t.Errorf("an unknown schedule: %d, %s", status, stderr)
	}
	if status, _, stderr := command(t, append(args, "cosine")...); status == 0 || strings.Contains(stderr, "--lr-scheduler") {
		t.Errorf("a known schedule: %d, %s", status, stderr)
	}
}

// TestAlpacaAndShareGPTWereSkipped: train run had no use for records of these forms.
func TestAlpacaAndShareGPTWereSkipped(t *testing.T) {
	dir, file := tinyModel(t), filepath.Join(t.TempDir(), "d.jsonl")
	b, err := json.Marshal(map[string]string{"chat_template": turnsTemplate})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(dir, "tokenizer_config.json"): string(b), file: `{"instruction":"a","input":"b","output":"c"}
{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"c"}]}
`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, _, stderr := command(t, "run", "--model", dir, "--data", file, "--batch", "1", "--max-steps", "1", "--threads", "1", "--strict-data",
		"--output", filepath.Join(t.TempDir(), "out"))
	if status != 0 || !strings.Contains(stderr, "sequences=2") {
		t.Errorf("%d, %s", status, stderr)
	}
}

// TestRunOnParquet: a Parquet file trains the same weights as the same records in JSONL.
func TestRunOnParquet(t *testing.T) {
	dir := tinyModel(t)
	fixtures := filepath.Join(golden.Module(t), "train", "data", "testdata", "parquet")
	for name, flags := range map[string][]string{"text": nil, "prompts": nil, "pairs": {"--method", "dpo"}} {
		var weights []string
		for _, ext := range []string{".jsonl", ".parquet"} {
			out := filepath.Join(t.TempDir(), "out")
			args := slices.Concat([]string{"run", "--model", dir, "--data", filepath.Join(fixtures, name+ext), "--output", out, "--max-steps", "2", "--batch", "2", "--lora", "r=2"}, flags)
			if status, stdout, stderr := command(t, args...); status != 0 {
				t.Fatalf("%s%s: %d: %s%s", name, ext, status, stdout, stderr)
			}
			weights = append(weights, string(weightsOf(t, out)))
		}
		if weights[0] != weights[1] {
			t.Errorf("%s: the weights differ", name)
		}
	}
	status, _, stderr := command(t, "run", "--model", dir, "--data", filepath.Join(fixtures, "numbers.parquet"), "--output", filepath.Join(t.TempDir(), "out"), "--strict-data")
	if status != 2 || !strings.Contains(stderr, "numbers.parquet: row group 1, row 1: text: got a number, want a string") {
		t.Errorf("%d: %s; want the place of the number", status, stderr)
	}
}
