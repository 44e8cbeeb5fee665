package main

import (
	"strings"
	"testing"
)

// TestBelowTheMinimumWarnsOnce: `serve plan --max-memory cpu=1MB` printed the warning twice, and a Go
// program got none.
func TestBelowTheMinimumWarnsOnce(t *testing.T) {
	var out, errs strings.Builder
	if status := run([]string{"plan", "--no-probe", "--max-memory", "cpu=1MB"}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if n := strings.Count(out.String()+errs.String(), "below the minimum"); n != 1 {
		t.Errorf("%d warnings:\n%s%s", n, out.String(), errs.String())
	}
}

// TestPlanShowedDeviceMemoryTwice: `serve plan` printed the memory of each device in a table and in
// a sentence below it.
func TestPlanShowedDeviceMemoryTwice(t *testing.T) {
	var out, errs strings.Builder
	if status := run([]string{"plan", "--no-probe", "--max-memory", "cpu=333MiB", "--device-map", "model.layers.1=disk"}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	for _, want := range []string{"333 MiB", "activations  ", "\ncpu   model.", "\ndisk  model.layers.1\n"} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%q is shown %d times, want once:\n%s", want, n, out.String())
		}
	}
}
