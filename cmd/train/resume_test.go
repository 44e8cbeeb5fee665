package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestOptimizersResume: all that optimizers keep is in checkpoints. A run that was interrupted after step 2
// and resumed ends with the bits of one that was not, in one process with one rank and with two.
func TestOptimizersResume(t *testing.T) {
	for _, flags := range [][]string{
		{"--optimizer", "adafactor"}, {"--optimizer", "muon"}, {"--optimizer", "adamw8bit"},
		{"--optimizer", "muon", "--num-processes", "2"}, {"--optimizer", "adamw8bit", "--num-processes", "2"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) { resumes(t, tinyModel(t), append(flags, "--lr", "0.01")...) })
	}
}

// TestModelsWithStatesResume: a model whose layers have a state for each sequence resumes bit for bit, in full
// and with LoRA.
func TestModelsWithStatesResume(t *testing.T) {
	for _, name := range []string{"lfm2", "mamba2"} {
		config, err := os.ReadFile(filepath.Join(golden.Module(t), "testdata/golden/train/gradients", name, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		dir := modelOf(t, strings.Replace(string(config), `"vocab_size": 40`, `"vocab_size": 512`, 1))
		for _, flags := range [][]string{{"--lr", "0.01"}, {"--lora", "r=2", "--lr", "0.05"}} {
			t.Run(name+" "+flags[0], func(t *testing.T) { resumes(t, dir, flags...) })
		}
	}
}

// resumes fails unless a run of four steps ends with the same bits when it is resumed after two.
func resumes(t *testing.T, dir string, flags ...string) {
	t.Helper()
	args := append([]string{"--model", dir, "--data", lessons(t, 8), "--max-steps", "4", "--save-steps", "2", "--sequence", "48"}, flags...)
	out, again := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "again")
	trained(t, append(args, "--output", out)...)
	trained(t, append(args, "--output", again, "--resume", filepath.Join(out, "checkpoint-2"))...)
	if !slices.Equal(valuesOf(t, again), valuesOf(t, out)) {
		t.Error("a resumed run ends with other weights")
	}
	for _, name := range []string{"optimizer.safetensors", "model.safetensors"} {
		a, err := os.ReadFile(filepath.Join(out, "checkpoint-4", name))
		b, err2 := os.ReadFile(filepath.Join(again, "checkpoint-4", name))
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s of the resumed run is another one, or there is none: %v, %v", name, err, err2)
		}
	}
	if slices.Equal(valuesOf(t, out), valuesOf(t, filepath.Join(out, "checkpoint-2"))) {
		t.Error("the steps after the checkpoint change nothing: the test shows nothing")
	}
}

// TestResumeNeverRemovedTheModel: with the model, the adapter or the data in a checkpoint of the output
// folder, --resume never removed them and the run failed.
func TestResumeNeverRemovedTheModel(t *testing.T) {
	dir, file := tinyModel(t), lessons(t, 4)
	for _, flags := range [][]string{{"--lora", "r=2"}, nil} {
		out := filepath.Join(t.TempDir(), "out")
		base := []string{"--output", out, "--max-steps", "1", "--sequence", "32"}
		trained(t, slices.Concat(base, flags, []string{"--model", dir, "--data", file})...)
		checkpoint := filepath.Join(out, "checkpoint-1")
		inside := filepath.Join(checkpoint, "data.jsonl")
		b, err := os.ReadFile(file)
		if err != nil || os.WriteFile(inside, b, 0o600) != nil {
			t.Fatal("the data was not copied", err)
		}
		named := map[string][]string{"--data": {"--model", dir, "--data", inside}, "--eval-data": {"--model", dir, "--data", file, "--eval-data", inside}}
		if flags == nil {
			named["--model"] = []string{"--model", checkpoint, "--data", file}
		} else {
			named["--lora"] = []string{"--model", dir, "--data", file, "--lora", "from=" + checkpoint}
		}
		for flag, args := range named {
			status, _, stderr := command(t, slices.Concat([]string{"run", "--resume", "never"}, base, args)...)
			if want := flag + " needs " + checkpoint; status != 2 || !strings.Contains(stderr, want) {
				t.Errorf("%s: got %d, %s, want %q", flag, status, stderr, want)
			}
			if _, err := os.Stat(filepath.Join(checkpoint, "random_states_0.json")); err != nil {
				t.Fatal(flag, err)
			}
		}
	}
}

// TestResumeNeverRemovedCheckpointsOfARunThatDidNotStart: --resume never removed checkpoints before the
// data was read, so that a mistake in the data lost them.
func TestResumeNeverRemovedCheckpointsOfARunThatDidNotStart(t *testing.T) {
	dir, out, bad := tinyModel(t), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--model", dir, "--output", out, "--max-steps", "2", "--save-steps", "1", "--sequence", "32"}
	file := lessons(t, 4)
	trained(t, append(args, "--data", file)...)
	settings, err := os.ReadFile(filepath.Join(out, "train_run.json"))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := command(t, slices.Concat([]string{"run", "--resume", "never", "--data", bad}, args)...); status != 2 {
		t.Fatalf("got %d, %s, want 2", status, stderr)
	}
	after, err := os.ReadFile(filepath.Join(out, "train_run.json"))
	if err != nil || !bytes.Equal(settings, after) {
		t.Errorf("the settings are those of the run that did not start: %v", err)
	}
	for _, name := range []string{"checkpoint-1", "checkpoint-2"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	trained(t, append(args, "--data", file, "--resume", "never", "--max-steps", "1")...)
	if _, err := os.Stat(filepath.Join(out, "checkpoint-2")); !os.IsNotExist(err) {
		t.Errorf("the checkpoint of the earlier run is there, or it cannot be looked for: %v", err)
	}
}

// TestResumedRunsKeptTheirRates: a run resumed with --resume DIR kept the learning rate and the weight decay of
// the checkpoint, whatever its flags said, and said nothing about changes.
func TestResumedRunsKeptTheirRates(t *testing.T) {
	for _, c := range []struct {
		flags, changed string
		rate           float64
	}{
		{"--lr 0.04", "learning_rate (then 0.01, now 0.04)", 0.02},
		{"--lr-scheduler constant", "lr_scheduler (then linear, now constant)", 0.01},
		{"--max-steps 8", "max_steps (then 4, now 8)", 0.0075},
		{"--lr-scheduler reduce_lr_on_plateau --lr 0.03 --eval-split 0.3", "learning_rate (then 0.01, now 0.03)", 0.03},
	} {
		resumed := resumedAfter2(t, strings.Fields(c.flags)...)
		status, _, stderr := command(t, resumed...)
		if status != 0 || !strings.Contains(stderr, c.changed) {
			t.Errorf("%s: got %d, %s, want %q", c.flags, status, stderr, c.changed)
		}
		if got := logged(t, resumed, 3, "learning_rate"); !(math.Abs(got-c.rate) <= 1e-12) {
			t.Errorf("%s: got rate %v in step 3, want %v", c.flags, got, c.rate)
		}
	}
}

// TestResumedRunsStoppedBeforeTheirLastStep: with other batches per step, a resumed run ended with the epoch of
// its checkpoint, steps too early.
func TestResumedRunsStoppedBeforeTheirLastStep(t *testing.T) {
	resumed := resumedAfter2(t, "--max-steps", "0", "--epochs", "6", "--gradient-accumulation-steps", "2")
	if status, out, stderr := command(t, resumed...); status != 0 || !strings.Contains(out, "6 steps") {
		t.Errorf("got %d, %s, %s, want 6 steps", status, out, stderr)
	}
}

// TestCheckpointsThatDoNotFitChangesSayHowToStart: a checkpoint without state for a changed setting was an error
// that named a file.
func TestCheckpointsThatDoNotFitChangesSayHowToStart(t *testing.T) {
	for flags, want := range map[string]string{
		"--optimizer sgd":        "does not continue with another optimizer",
		"--mixed-precision fp16": "mixed_precision (then no, now fp16)",
		"--lora r=2":             "lora (then none, now r=2)",
	} {
		status, _, stderr := command(t, resumedAfter2(t, strings.Fields(flags)...)...)
		if status != 2 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "start from the checkpoint's weights with --model ") {
			t.Errorf("%s: got %d, %s, want %q", flags, status, stderr, want)
		}
	}
}

// TestRunsDidNotResumeWithOtherEvaluationData: checkpoints have the positions of all loaders, and a resumed run
// failed if evaluation data was added or left out.
func TestRunsDidNotResumeWithOtherEvaluationData(t *testing.T) {
	dir, file, out := tinyModel(t), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	args := []string{"--model", dir, "--data", file, "--output", out, "--max-steps", "4", "--save-steps", "2", "--sequence", "48"}
	trained(t, args...)
	want := valuesOf(t, out)
	for _, flags := range [][]string{{"--eval-data", file}, nil} {
		if err := os.RemoveAll(filepath.Join(out, "checkpoint-4")); err != nil {
			t.Fatal(err)
		}
		trained(t, slices.Concat(args, flags)...)
		if !slices.Equal(valuesOf(t, out), want) {
			t.Errorf("%v: a resumed run ends with other weights", flags)
		}
	}
}

// resumedAfter2 trains four steps at a rate of 0.01, and returns the arguments of a run that continues after the
// second step with flags.
func resumedAfter2(t *testing.T, flags ...string) []string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"--model", tinyModel(t), "--data", lessons(t, 16), "--save-steps", "2", "--sequence", "48", "--lr", "0.01", "--max-steps", "4"}
	trained(t, append(args, "--output", out)...)
	args = append([]string{"run"}, args...)
	return append(append(args, "--output", filepath.Join(t.TempDir(), "again"), "--resume", filepath.Join(out, "checkpoint-2"), "--log-steps", "1", "--log-with", "jsonl"), flags...)
}

// logged returns a value that a run with these arguments logged at a step.
func logged(t *testing.T, args []string, step float64, name string) float64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(args[slices.Index(args, "--output")+1], "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var of map[string]any
		if err := json.Unmarshal([]byte(line), &of); err != nil {
			t.Fatal(err)
		}
		if v, ok := of[name].(float64); ok && of["step"] == step {
			return v
		}
	}
	t.Fatalf("no %s of step %v in %s", name, step, b)
	return 0
}
