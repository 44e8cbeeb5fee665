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
