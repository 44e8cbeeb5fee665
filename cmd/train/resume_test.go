package main

import (
	"bytes"
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
