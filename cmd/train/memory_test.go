package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/finetune"
)

// TestABaseBeyondMaxMemoryTrainsTheSameAdapter runs with the base in the page cache and streamed.
func TestABaseBeyondMaxMemoryTrainsTheSameAdapter(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	trained := func(flags ...string) (weights []byte, r finetune.Result, stderr string) {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"run", dir, "--data", text, "--output", out, "--max-steps", "3", "--lora", "r=2", "--gradient-accumulation-steps", "2", "--json"}, flags...)
		status, stdout, stderr := command(t, args...)
		if status != 0 {
			t.Fatalf("%d: %s", status, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatal(err)
		}
		return weightsOf(t, out), r, stderr
	}
	want, r, _ := trained()
	if r.DiskBytes != 0 {
		t.Errorf("%d bytes streamed without a limit", r.DiskBytes)
	}
	got, r, stderr := trained("--max-memory", "cpu=1MiB")
	if !bytes.Equal(got, want) {
		t.Error("the adapter differs")
	}
	if r.DiskBytes == 0 || !strings.Contains(stderr, "minimum") {
		t.Errorf("%d bytes streamed; stderr: %s", r.DiskBytes, stderr)
	}
	got, _, stderr = trained("--max-memory", "cpu=900MiB")
	if !bytes.Equal(got, want) || strings.Contains(stderr, "minimum") {
		t.Errorf("with room for all: the same adapter: %v, stderr: %s", bytes.Equal(got, want), stderr)
	}
}

// TestAccumulationReadAStreamedBaseTwiceABatch: a step reads it once forwards and once backwards, whatever the number of its batches,
// also of a last window that is shorter, and leaves the same adapter, optimizer state, losses and metrics.
func TestAccumulationReadAStreamedBaseTwiceABatch(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	trained := func(accumulate string, flags ...string) (left string, r finetune.Result) {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"run", dir, "--data", text, "--output", out, "--epochs", "1", "--batch", "1", "--lora", "r=2", "--sequence", "24",
			"--gradient-accumulation-steps", accumulate, "--log-steps", "1", "--json"}, flags...)
		status, stdout, stderr := command(t, args...)
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
			t.Fatalf("%d: %s (%v)", status, stderr, err)
		}
		var state train.TrainerState
		saved := filepath.Join(out, fmt.Sprintf("checkpoint-%d", r.Steps))
		b, err := os.ReadFile(filepath.Join(saved, "trainer_state.json"))
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, logs := range state.LogHistory {
			delete(logs, "train_runtime")
			delete(logs, "train_steps_per_second")
		}
		optimizer, err := filepath.Glob(filepath.Join(saved, "optimizer*"))
		if err != nil || len(optimizer) == 0 {
			t.Fatal("no state of an optimizer", err)
		}
		left = fmt.Sprintf("%x %v", weightsOf(t, out), state.LogHistory)
		for _, name := range optimizer {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			left += fmt.Sprintf(" %x", b)
		}
		if scratch, _ := filepath.Glob(filepath.Join(out, ".heft-tmp-*")); len(scratch) > 0 {
			t.Errorf("left behind: %v", scratch)
		}
		return left, r
	}
	_, one := trained("1", "--max-memory", "cpu=1MiB")
	for _, accumulate := range []string{"3", "8"} {
		want, _ := trained(accumulate)
		got, r := trained(accumulate, "--max-memory", "cpu=1MiB")
		if got != want {
			t.Errorf("accumulation of %s: another adapter, optimizer state or log", accumulate)
		}
		if each, first := r.DiskBytes/int64(r.Steps), one.DiskBytes/int64(one.Steps); each > leeway(first) {
			t.Errorf("accumulation of %s reads %d bytes a step, want %d as without", accumulate, each, first)
		}
	}
}

// leeway returns the most bytes that a step may read where another one reads the given number. Whether an embedding is still in
// memory when the next step begins depends on time, and is up to a fifth of the reads of these models. One more forward sweep would
// be half.
func leeway(bytes int64) int64 { return bytes + bytes*2/5 }

// TestPreferenceMethodsReadAStreamedBaseTwiceABatch: with --method dpo, orpo, kto, reward and grpo too, a step reads the base
// once forwards and once backwards, including the passes of the reference, and leaves the adapter of a base in memory.
func TestPreferenceMethodsReadAStreamedBaseTwiceABatch(t *testing.T) {
	dir, pairs, groups := tinyModel(t), pairsFile(t, 12), groupsFile(t, 12)
	trained := func(method, accumulate string, flags ...string) (string, int64) {
		out, file := filepath.Join(t.TempDir(), "out"), pairs
		if method == "grpo" {
			file, flags = groups, append(flags, "--beta", "0.1")
		}
		args := append([]string{"run", dir, "--data", file, "--output", out, "--method", method, "--max-steps", "2", "--batch", "2", "--lora", "r=2", "--lr", "0.01",
			"--sequence", "48", "--gradient-accumulation-steps", accumulate, "--threads", "1", "--save-steps", "-1", "--json"}, flags...)
		var r finetune.Result
		status, stdout, stderr := command(t, args...)
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
			t.Fatalf("%s: %d: %s (%v)", method, status, stderr, err)
		}
		return fmt.Sprintf("%x %v", weightsOf(t, out), *r.Loss), r.DiskBytes / int64(r.Steps)
	}
	_, least := trained("orpo", "1", "--max-memory", "cpu=1KiB")
	for _, method := range []string{"dpo", "orpo", "kto", "reward", "grpo"} {
		want, _ := trained(method, "3")
		got, read := trained(method, "3", "--max-memory", "cpu=1KiB")
		if got != want {
			t.Errorf("%s: another adapter or loss", method)
		}
		if read > leeway(least) || least == 0 {
			t.Errorf("%s reads %d bytes a step of 3 batches, want those of one without a reference, %d", method, read, least)
		}
	}
}

// TestASweepOnSeveralRanksAndOfMagnitudesLearnsTheSame: two ranks, and DoRA, on a base that streams leave the adapter of a base in
// memory.
func TestASweepOnSeveralRanksAndOfMagnitudesLearnsTheSame(t *testing.T) {
	dir := tinyModel(t)
	trained := func(file string, flags ...string) (string, int64) {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"run", dir, "--data", file, "--output", out, "--max-steps", "2", "--batch", "1", "--lora", "r=2", "--lr", "0.01",
			"--sequence", "48", "--gradient-accumulation-steps", "3", "--threads", "1", "--save-steps", "-1", "--json"}, flags...)
		var r finetune.Result
		status, stdout, stderr := command(t, args...)
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
			t.Fatalf("%q: %d: %s (%v)", flags, status, stderr, err)
		}
		return fmt.Sprintf("%x %v", weightsOf(t, out), *r.Loss), r.DiskBytes
	}
	text, pairs := lessons(t, 12), pairsFile(t, 12)
	for _, flags := range []string{"--num-processes 2", "--num-processes 2 --plugin zero1", "--num-processes 2 --plugin zero2", "--num-processes 2 --method dpo", "--dora", "--dora --method dpo"} {
		file, all := text, strings.Fields(flags)
		if strings.Contains(flags, "dpo") {
			file = pairs
		}
		want, _ := trained(file, all...)
		got, read := trained(file, append(all, "--max-memory", "cpu=1KiB")...)
		if got != want || read == 0 {
			t.Errorf("%s: read %d bytes; the same adapter and loss: %v", flags, read, got == want)
		}
	}
}

func TestMaxMemoryThatCannotBeKeptIsRefused(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	for flags, want := range map[string]string{
		"--max-memory cpu=1GiB": "or --plugin gemini",
		"--max-memory cpu=1GiB --plugin gemini --mixed-precision fp16": "use --mixed-precision bf16",
		"--lora r=2 --max-memory 0=1GiB":                               "got device 0, want cpu",
		"--lora r=2 --max-memory cpu=0":                                "want more than 0",
		"--lora r=2 --max-memory cpu=plenty":                           "--max-memory",
	} {
		args := append([]string{"run", dir, "--data", text, "--output", t.TempDir()}, strings.Fields(flags)...)
		if status, _, stderr := command(t, args...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", flags, status, stderr)
		}
	}
}

// TestAFullFineTuneBeyondMaxMemory: --plugin gemini leaves the same model within a limit that holds little of
// it, goes on from a checkpoint, and leaves no scratch file, nor that of a process that was killed.
func TestAFullFineTuneBeyondMaxMemory(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	trained := func(out string, flags ...string) (weights []byte, r finetune.Result) {
		args := append([]string{"run", dir, "--data", text, "--output", out, "--gradient-accumulation-steps", "2", "--save-steps", "1", "--json"}, flags...)
		status, stdout, stderr := command(t, args...)
		if status != 0 {
			t.Fatalf("%d: %s", status, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatal(err)
		}
		return weightsOf(t, out), r
	}
	want, r := trained(filepath.Join(t.TempDir(), "out"), "--max-steps", "2", "--recompute", "on")
	if r.DiskBytes != 0 {
		t.Errorf("%d bytes were read without a limit", r.DiskBytes)
	}
	out := filepath.Join(t.TempDir(), "out")
	killed := filepath.Join(out, ".heft-tmp-1-residency.scratch")
	if err := errors.Join(os.MkdirAll(out, 0o777), os.WriteFile(killed, []byte("weights"), 0o666)); err != nil {
		t.Fatal(err)
	}
	got, r := trained(out, "--max-steps", "2", "--plugin", "gemini", "--max-memory", "cpu=1MiB")
	if !bytes.Equal(got, want) {
		t.Error("the weights differ")
	}
	if r.DiskBytes == 0 {
		t.Error("nothing was read from the disk")
	}
	if err := os.RemoveAll(filepath.Join(out, "checkpoint-2")); err != nil {
		t.Fatal(err)
	}
	if again, _ := trained(out, "--max-steps", "2", "--plugin", "gemini", "--max-memory", "cpu=1MiB"); !bytes.Equal(again, want) {
		t.Error("the weights differ after going on")
	}
	if left, _ := filepath.Glob(filepath.Join(out, ".heft-tmp-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
