package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/finetune"
)

// preferenceTrace is TRL's run of a method.
type preferenceTrace struct {
	Batch int
	Rate  float64
	Seed  uint64
	Cases []struct {
		Name, Method, Data string
		Flags              []string
		Steps              []map[string]float64
	}
}

// TestGoldenPreferenceRuns compares train run with TRL: losses by step within 1e-5, and the metrics.
func TestGoldenPreferenceRuns(t *testing.T) {
	dir := golden.Own(t, "train", "preference")
	var trace preferenceTrace
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) {
		t.Fatal("no fixtures of preference tuning")
	}
	for _, c := range trace.Cases {
		t.Run(c.Name, func(t *testing.T) {
			args := slices.Concat([]string{"--method", c.Method, "--batch", fmt.Sprint(trace.Batch), "--lr", fmt.Sprint(trace.Rate), "--seed", fmt.Sprint(trace.Seed),
				"--max-steps", fmt.Sprint(len(c.Steps)), "--sequence", "64", "--no-shuffle"}, c.Flags)
			got := loggedSteps(t, dir, filepath.Join(dir, c.Data+".jsonl"), args...)
			checkSteps(t, got, c.Steps)
		})
	}
	golden.Count(t, "train/preference", len(trace.Cases))
}

// loggedSteps runs train run with a log of each step and returns the logged values.
func loggedSteps(t *testing.T, model, file string, args ...string) []map[string]any {
	t.Helper()
	return historyOf(t, loggedRun(t, model, file, args...))
}

// loggedRun runs train run with a log of each step and returns its folder.
func loggedRun(t *testing.T, model, file string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	all := slices.Concat([]string{"run", "--model", model, "--data", file, "--output", out, "--log-steps", "1", "--threads", "1"}, args)
	var stdout, stderr bytes.Buffer
	if status := run(all, &stdout, &stderr); status != 0 {
		t.Fatalf("train %q ended with %d: %s", all, status, stderr.String())
	}
	return out
}

// pairsFile is a JSONL file of n comparisons.
func pairsFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": \"what comes after %d? \", \"chosen\": \"%d\", \"rejected\": \"%s\"}\n", i, i+1, strings.Repeat("no ", 1+i%3))
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPreferenceRunsEvaluate checks that evaluations have the metrics of comparisons, measured on the
// evaluation data alone.
func TestPreferenceRunsEvaluate(t *testing.T) {
	dir, file := tinyModel(t), pairsFile(t, 6)
	out := filepath.Join(t.TempDir(), "out")
	var stdout, stderr bytes.Buffer
	args := []string{"run", "--model", dir, "--data", file, "--eval-data", pairsFile(t, 3), "--output", out, "--method", "dpo", "--beta", "0.5",
		"--epochs", "1", "--batch", "2", "--lr", "0.01", "--lora", "r=2", "--json"}
	if status := run(args, &stdout, &stderr); status != 0 {
		t.Fatal(stderr.String())
	}
	var result finetune.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatal(err)
	}
	m := result.Metrics
	if margin := m["eval_rewards/chosen"] - m["eval_rewards/rejected"]; margin == 0 || !(math.Abs(margin-m["eval_rewards/margins"]) <= 1e-6) {
		t.Errorf("got margins %v of rewards %v and %v", m["eval_rewards/margins"], m["eval_rewards/chosen"], m["eval_rewards/rejected"])
	}
	if loss := m["eval_loss"]; !(loss > 0 && loss < math.Ln2) {
		t.Errorf("got an evaluation loss of %v, want less than that of the reference", loss)
	}
}

// TestPreferenceRunsContinue compares a run that is stopped with one that is not.
func TestPreferenceRunsContinue(t *testing.T) {
	dir, file := tinyModel(t), pairsFile(t, 8)
	for name, flags := range map[string][]string{"full": nil, "lora on two ranks": {"--lora", "r=2,dropout=0.1", "--num-processes", "2"},
		"kto on two ranks": {"--method", "kto", "--num-processes", "2"}} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"run", "--model", dir, "--data", file, "--epochs", "2", "--batch", "2", "--lr", "0.01",
				"--save-steps", "1", "--save-total-limit", "0", "--threads", "1", "--method", "dpo"}, flags)
			once, again := filepath.Join(t.TempDir(), "once"), filepath.Join(t.TempDir(), "again")
			for _, out := range []string{once, again} {
				var stderr bytes.Buffer
				if status := run(append(args, "--output", out), &bytes.Buffer{}, &stderr); status != 0 {
					t.Fatal(stderr.String())
				}
			}
			later, err := filepath.Glob(filepath.Join(again, "checkpoint-*"))
			if err != nil || len(later) < 4 {
				t.Fatalf("got checkpoints %v, want one a step: %v", later, err)
			}
			for _, c := range later {
				if !strings.HasSuffix(c, "-2") {
					if err := os.RemoveAll(c); err != nil {
						t.Fatal(err)
					}
				}
			}
			var stderr bytes.Buffer
			if status := run(append(args, "--output", again), &bytes.Buffer{}, &stderr); status != 0 {
				t.Fatal(stderr.String())
			}
			if !bytes.Equal(weightsOf(t, once), weightsOf(t, again)) {
				t.Error("the run that continued ended with other weights")
			}
		})
	}
}

func TestPreferenceFlagsAreChecked(t *testing.T) {
	dir, file := tinyModel(t), pairsFile(t, 2)
	for want, flags := range map[string][]string{
		"--loss-type needs --method dpo or grpo, got --method sft":       {"--loss-type", "ipo"},
		"got --beta 0, want more than 0":                                 {"--method", "dpo", "--beta", "0"},
		"got --label-smoothing 0.1, want 0: the loss hinge has none":     {"--method", "dpo", "--loss-type", "hinge", "--label-smoothing", "0.1"},
		"--pack needs --method sft, got --method dpo":                    {"--method", "dpo", "--pack"},
		"got --label-smoothing 1, want 0 or more":                        {"--label-smoothing", "1"},
		"use train run --method dpo":                                     {},
		"--label-smoothing needs --method sft or dpo, got --method orpo": {"--method", "orpo", "--label-smoothing", "0.1"},
		"got --batch 1, but kto needs at least 2":                        {"--method", "kto", "--batch", "1"},
		"--desirable-weight needs --method kto":                          {"--method", "dpo", "--desirable-weight", "2"},
	} {
		var stderr bytes.Buffer
		status := run(slices.Concat([]string{"run", "--model", dir, "--data", file, "--output", filepath.Join(t.TempDir(), "out")}, flags), &bytes.Buffer{}, &stderr)
		if status != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: got status %d and %q, want 2 and %q", flags, status, stderr.String(), want)
		}
	}
}
