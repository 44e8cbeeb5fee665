package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestGoldenSFTRuns compares train run with TRL's SFTTrainer: the loss, the entropy and the accuracy of each log and
// evaluation within 1e-5, and the number of tokens.
func TestGoldenSFTRuns(t *testing.T) {
	dir := golden.Own(t, "train", "sft")
	var trace struct {
		Batch, Steps int
		Rate         float64
		Seed         uint64
		Cases        []struct {
			Name, Data string
			Eval       bool
			Log        int
			Flags      []string
			Steps      []map[string]float64
		}
	}
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) {
		t.Fatal("no fixtures of supervised fine-tuning")
	}
	for _, c := range trace.Cases {
		t.Run(c.Name, func(t *testing.T) {
			args := []string{"--batch", fmt.Sprint(trace.Batch), "--lr", fmt.Sprint(trace.Rate), "--seed", fmt.Sprint(trace.Seed),
				"--max-steps", fmt.Sprint(trace.Steps), "--sequence", "64", "--no-shuffle", "--log-steps", fmt.Sprint(c.Log)}
			if c.Eval {
				args = append(args, "--eval-data", filepath.Join(dir, "eval.jsonl"), "--eval-steps", "2")
			}
			out := loggedRun(t, golden.Own(t, "train", "preference"), filepath.Join(dir, c.Data+".jsonl"), append(args, c.Flags...)...)
			checkSteps(t, logsOf(t, out), c.Steps)
		})
	}
	golden.Count(t, "train/sft", len(trace.Cases))
}

// TestPackedTextsAreMeasuredAsOthers compares packed texts with the same ones in rows of their own: the first
// token of a text is not predicted, and padding does not count.
func TestPackedTextsAreMeasuredAsOthers(t *testing.T) {
	dir := tinyModel(t)
	file := fileOf(t, "texts.jsonl", strings.Repeat("{\"text\": \"one two\"}\n{\"text\": \"three four five six\"}\n", 2))
	args := []string{"--max-steps", "2", "--sequence", "64", "--batch", "4", "--no-shuffle", "--lr", "0.01"}
	apart := loggedSteps(t, dir, file, args...)
	packed := loggedSteps(t, dir, file, append(args, "--pack")...)
	for i := range apart {
		for _, name := range []string{"entropy", "mean_token_accuracy", "num_tokens"} {
			want, got := apart[i][name].(float64), packed[i][name].(float64)
			if !(math.Abs(got-want) <= 1e-4*math.Abs(want)) || want == 0 && name != "mean_token_accuracy" {
				t.Errorf("step %d: got %s %v when packed, want %v", i+1, name, got, want)
			}
		}
	}
}

// TestTokensAreCountedOn continues a run: num_tokens counts those before the interruption, too.
func TestTokensAreCountedOn(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	args := []string{"--batch", "2", "--lora", "r=2", "--save-steps", "1", "--save-total-limit", "0", "--max-steps", "4"}
	out := loggedRun(t, dir, text, args...)
	once := historyOf(t, out)
	for _, step := range []string{"3", "4"} {
		if err := os.RemoveAll(filepath.Join(out, "checkpoint-"+step)); err != nil {
			t.Fatal(err)
		}
	}
	again := append([]string{"run", "--model", dir, "--data", text, "--output", out, "--log-steps", "1", "--threads", "1"}, args...)
	if status, _, stderr := command(t, again...); status != 0 {
		t.Fatal(stderr)
	}
	total := 0.0
	for i, e := range historyOf(t, out) {
		n, _ := e["num_tokens"].(float64)
		if n <= total || n != once[i]["num_tokens"] {
			t.Errorf("step %d: got num_tokens %v after %v, want %v", i+1, n, total, once[i]["num_tokens"])
		}
		total = n
	}
}
