package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
