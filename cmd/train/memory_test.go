package main

import (
	"bytes"
	"encoding/json"
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
		"--max-memory cpu=1GiB":              "needs --lora",
		"--lora r=2 --max-memory 0=1GiB":     "got device 0, want cpu",
		"--lora r=2 --max-memory cpu=0":      "want more than 0",
		"--lora r=2 --max-memory cpu=plenty": "--max-memory",
	} {
		args := append([]string{"run", dir, "--data", text, "--output", t.TempDir()}, strings.Fields(flags)...)
		if status, _, stderr := command(t, args...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", flags, status, stderr)
		}
	}
}
