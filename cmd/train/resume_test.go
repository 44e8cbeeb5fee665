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
