package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/finetune"
)

// TestGoldenGRPORuns compares train run with TRL's GRPOTrainer on the same completions and rewards: losses by
// step within 1e-5, and the metrics.
func TestGoldenGRPORuns(t *testing.T) {
	grpo, preference := golden.Own(t, "train", "grpo"), golden.Own(t, "train", "preference")
	var trace struct {
		preferenceTrace
		Longest int
	}
	if !golden.JSON(t, filepath.Join(grpo, "trace.json"), &trace) {
		t.Fatal("no fixtures of GRPO")
	}
	for _, c := range trace.Cases {
		t.Run(c.Name, func(t *testing.T) {
			args := slices.Concat([]string{"--method", "grpo", "--batch", fmt.Sprint(trace.Batch), "--lr", fmt.Sprint(trace.Rate), "--seed", fmt.Sprint(trace.Seed),
				"--max-completion-length", fmt.Sprint(trace.Longest), "--max-steps", fmt.Sprint(len(c.Steps)), "--sequence", "64", "--no-shuffle"}, c.Flags)
			got := loggedSteps(t, preference, filepath.Join(grpo, c.Data+".jsonl"), args...)
			checkSteps(t, got, c.Steps)
		})
	}
	golden.Count(t, "train/grpo", len(trace.Cases))
}

// TestRecordsThatGiveNothingAreNotSkipped: where no record can be used, that is the error. A warning before it said that
// records are skipped, for no reason.
func TestRecordsThatGiveNothingAreNotSkipped(t *testing.T) {
	file := promptsFile(t, 2)
	status, _, stderr := command(t, "run", "--model", tinyModel(t), "--data", file, "--output", filepath.Join(t.TempDir(), "out"), "--method", "grpo")
	if status != 2 || !strings.Contains(stderr, "no record of "+file+" can be used") || strings.Contains(stderr, "skipped") {
		t.Errorf("%d: %s", status, stderr)
	}
}

// checkSteps compares logged values with TRL's.
func checkSteps(t *testing.T, got []map[string]any, want []map[string]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d logged steps, want %d", len(got), len(want))
	}
	for i, want := range want {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			v, ok := got[i][name].(float64)
			within := 1e-5 * max(1, math.Abs(want[name]))
			if name == "kl" { // the difference of two sums of log-probabilities, which are rounded to float32
				within = max(within, math.Abs(want["logps/chosen"])*0x1p-22)
			}
			if !ok || !(math.Abs(v-want[name]) <= within) {
				t.Errorf("step %d: %s: got %v, want %g", i+1, name, got[i][name], want[name])
			}
		}
	}
}

// promptsFile is a JSONL file of n prompts.
func promptsFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": \"number %d: \", \"answer\": %d}\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGRPOLearnsWhatIsRewarded trains a model whose completions the engine generates: their mean reward
// rises, with an adapter and without.
func TestGRPOLearnsWhatIsRewarded(t *testing.T) {
	dir, file := tinyModel(t), promptsFile(t, 4)
	for name, lora := range map[string]string{"full": "", "lora": "r=8"} {
		t.Run(name, func(t *testing.T) {
			o := finetune.Defaults()
			if o.NumIterations = 1; lora != "" {
				o.NumIterations = 2
			}
			o.Output, o.Method, o.LoRA, o.Batch, o.LearningRate, o.MaxSteps, o.LogSteps = filepath.Join(t.TempDir(), "out"), "grpo", lora, 4, 0.02, 16, 1
			if lora != "" {
				o.LearningRate, o.MaxSteps = 0.1, 40
			}
			o.MaxCompletionLength, o.Sequence, o.Threads = 6, 48, 1
			records := 0
			o.Reward = func(_ context.Context, p finetune.RewardPrompt, completions []string) (rewards []float64, err error) {
				if strings.Contains(string(p.Record), `"answer"`) && strings.Contains(p.Text, "number ") {
					records++
				}
				for _, c := range completions {
					rewards = append(rewards, float64(strings.Count(strings.ToLower(c), "e")-2*strings.Count(c, " ")))
				}
				return rewards, nil
			}
			if _, err := finetune.Run(t.Context(), dir, []string{file}, o); err != nil {
				t.Fatal(err)
			}
			steps := historyOf(t, o.Output)
			var means []float64
			for _, s := range steps {
				if r, ok := s["reward"].(float64); ok { // of steps with new completions
					means = append(means, r)
				}
			}
			n := len(means)
			if first, last := mean(means[:n/4]), mean(means[n/2:]); !(last > first+0.3) || records != 4*n {
				t.Errorf("got mean rewards %.2f of %d records: they do not rise", means, records)
			}
			if left, err := filepath.Glob(filepath.Join(o.Output, ".rollout*")); err != nil || len(left) > 0 {
				t.Errorf("the run left %v, %v", left, err)
			}
		})
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// TestGRPORunsContinue compares a run that is stopped with one that is not: completions are the same.
func TestGRPORunsContinue(t *testing.T) {
	dir, file := tinyModel(t), promptsFile(t, 8)
	for name, flags := range map[string][]string{"lora on two ranks": {"--lora", "r=2", "--num-processes", "2", "--scale-rewards", "batch"},
		"several iterations": {"--num-iterations", "2", "--beta", "0.1", "--eval-data", file, "--eval-steps", "2"}} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"run", "--model", dir, "--data", file, "--epochs", "1", "--batch", "2", "--lr", "0.01", "--method", "grpo", "--sequence", "40",
				"--reward", "regex=[aeiou]", "--reward", "0.5*contains=answer", "--max-completion-length", "5", "--num-generations", "3",
				"--save-steps", "2", "--save-total-limit", "0", "--threads", "1"}, flags)
			once, again := filepath.Join(t.TempDir(), "once"), filepath.Join(t.TempDir(), "again")
			mustRun(t, append(args, "--output", once))
			mustRun(t, append(args, "--output", again))
			later, err := filepath.Glob(filepath.Join(again, "checkpoint-*"))
			if err != nil || len(later) < 2 && !strings.HasPrefix(name, "lora") {
				t.Fatalf("got checkpoints %v, %v", later, err)
			}
			for _, c := range later[1:] {
				if err := os.RemoveAll(c); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, append(args, "--output", again))
			if !bytes.Equal(weightsOf(t, once), weightsOf(t, again)) {
				t.Error("the run that continued ended with other weights")
			}
		})
	}
}

// mustRun runs train and fails the test if train fails.
func mustRun(t *testing.T, args []string) {
	t.Helper()
	var stderr bytes.Buffer
	if status := run(args, &bytes.Buffer{}, &stderr); status != 0 {
		t.Fatalf("train %q ended with %d: %s", args, status, stderr.String())
	}
}

func TestGRPOFlagsAreChecked(t *testing.T) {
	dir, file := tinyModel(t), promptsFile(t, 2)
	for want, flags := range map[string][]string{
		"--reward needs --method grpo, got --method sft":                                   {"--method", "sft", "--reward", "regex=a"},
		"use --reward or --reward-command":                                                 {},
		"--reward-weights other: got no reward of this name, want one of regex=a, command": {"--reward", "regex=a", "--reward-command", "true", "--reward-weights", "other=2"},
		"got two rewards with the name regex=a":                                            {"--reward", "regex=a", "--reward", "0.5*regex=a"},
		"got --reward-weights regex=a, want NAME=WEIGHT with a number":                     {"--reward", "regex=a", "--reward-weights", "regex=a"},
		"got --loss-type ipo, want dapo, grpo, bnpo or dr_grpo":                            {"--loss-type", "ipo"},
		"got --num-generations 1, want at least 2":                                         {"--reward", "regex=a", "--num-generations", "1"},
		"got --save-steps 3, want a multiple of --num-iterations 2":                        {"--save-steps", "3", "--num-iterations", "2"},
		"--reward similar=answer: got the rule":                                            {"--reward", "similar=answer"},
		"--reward x*regex=a: got the weight":                                               {"--reward", "x*regex=a"},
		"--quantize nf4: completions are not generated":                                    {"--reward", "regex=a", "--quantize", "nf4", "--lora", "r=2"},
		"got 2 prompts, want at least 8 for a step":                                        {"--reward", "regex=a", "--num-iterations", "2"},
		"--reward-command: exec: \"no-such-program\"":                                      {"--reward-command", "no-such-program x"},
	} {
		var stderr bytes.Buffer
		status := run(slices.Concat([]string{"run", "--model", dir, "--data", file, "--output", filepath.Join(t.TempDir(), "out"), "--method", "grpo"}, flags), &bytes.Buffer{}, &stderr)
		if status != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: got status %d and %q, want 2 and %q", flags, status, stderr.String(), want)
		}
	}
}

// historyOf returns the logged steps of the last checkpoint of a run.
func historyOf(t *testing.T, out string) []map[string]any {
	t.Helper()
	return slices.DeleteFunc(logsOf(t, out), func(e map[string]any) bool { _, ok := e["loss"]; return !ok })
}

// logsOf returns the logged steps and evaluations of the last checkpoint of a run.
func logsOf(t *testing.T, out string) []map[string]any {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(out, "checkpoint-*", "trainer_state.json"))
	if err != nil || len(states) == 0 {
		t.Fatalf("no checkpoint in %s: %v", out, err)
	}
	slices.SortFunc(states, func(a, b string) int { return len(a) - len(b) })
	b, err := os.ReadFile(states[len(states)-1])
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		History []map[string]any `json:"log_history"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatal(err)
	}
	return state.History
}
