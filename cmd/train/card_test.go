package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelCard: the output folder has a model card without folders of this machine. A card of the
// user's own stays.
func TestModelCard(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	out := filepath.Join(t.TempDir(), "my-model")
	train := func() string {
		t.Helper()
		if status, stdout, stderr := command(t, "run", "--model", dir, "--data", text, "--eval-data", text, "--output", out, "--max-steps", "2", "--lora", "r=2", "--resume", "never"); status != 0 {
			t.Fatalf("%d: %s%s", status, stdout, stderr)
		}
		b, err := os.ReadFile(filepath.Join(out, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	card := train()
	for _, want := range []string{"library_name: peft\n", "# my-model\n", "| data | data.jsonl |", "| LoRA | r=2 |", "| learning rate | 0.0002 |", "| steps | 2 |", "| eval_loss | "} {
		if !strings.Contains(card, want) {
			t.Errorf("the card has no %q:\n%s", want, card)
		}
	}
	if strings.Contains(card, filepath.Dir(dir)) || strings.Contains(card, "base_model") {
		t.Errorf("the card names a folder of this machine:\n%s", card)
	}
	if again := train(); again != card {
		t.Errorf("another run wrote\n%s\nwant\n%s", again, card)
	}
	if err := os.WriteFile(filepath.Join(out, "README.md"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept := train(); kept != "mine" {
		t.Errorf("the user's card was replaced by\n%s", kept)
	}
}

// TestScheduleOptions: options of schedules reach them, and wrong ones are rejected before data is read.
func TestScheduleOptions(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	var weights []string
	for _, options := range []string{"", `{"num_cycles": 3}`} {
		out := filepath.Join(t.TempDir(), "out")
		if status, stdout, stderr := command(t, "run", "--model", dir, "--data", text, "--output", out, "--max-steps", "4", "--lr-scheduler", "cosine_with_restarts", "--lr-scheduler-kwargs", options); status != 0 {
			t.Fatalf("%d: %s%s", status, stdout, stderr)
		}
		weights = append(weights, string(weightsOf(t, out)))
	}
	if weights[0] == weights[1] {
		t.Error("the options have no effect")
	}
	for options, want := range map[string]string{`{"cycles": 3}`: "cycles", "3": "want a JSON object"} {
		if status, _, stderr := command(t, "run", "--model", dir, "--data", "missing.jsonl", "--output", t.TempDir(), "--lr-scheduler", "cosine", "--lr-scheduler-kwargs", options); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d: %s", options, status, stderr)
		}
	}
}
