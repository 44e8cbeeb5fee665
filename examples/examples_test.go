// Package examples runs the programs below it as a user does.
package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestExamplesRun builds every example and runs it without arguments in an empty folder.
// It must end well within 40 seconds, having said something. What it says is checked
// beside it.
func TestExamplesRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs programs")
	}
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, program := range programs {
		name := filepath.Dir(program)
		t.Run(name, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), name)
			if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, bin)
			cmd.Dir = t.TempDir()
			cmd.Stderr = os.Stderr
			begin := time.Now()
			out, err := cmd.Output()
			if err != nil || len(out) == 0 {
				t.Errorf("after %v: %v\n%s", time.Since(begin).Round(time.Millisecond), err, out)
			}
			if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
				t.Errorf("it left %s behind", left[0].Name())
			}
			t.Logf("%v", time.Since(begin).Round(time.Millisecond))
		})
	}
}
