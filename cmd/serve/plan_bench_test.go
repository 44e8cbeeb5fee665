package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// BenchmarkPlanTrillion is serve plan of the config of a mixture of a trillion parameters, of which most are on the disk.
func BenchmarkPlanTrillion(b *testing.B) {
	config := filepath.Join(golden.Module(b), "dispatch", "testdata", "shapes", "moe-1t.json")
	for b.Loop() {
		if code := run([]string{"plan", config, "--no-probe", "--max-memory", "cpu=20GiB"}, io.Discard, io.Discard); code != 0 {
			b.Fatal("status", code)
		}
	}
}
