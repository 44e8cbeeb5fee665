// Package examples runs the programs below it as a user does.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestExamplesRun builds every example and runs it without arguments in an empty folder.
// It must end well within 40 seconds, having said something, which is not mixed with the lines of a server's log. What it
// says is checked next to it. With -h it says how it is called.
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
			if help, err := exec.CommandContext(ctx, bin, "-h").CombinedOutput(); err != nil || !strings.HasPrefix(string(help), "Usage") {
				t.Errorf("with -h: %v\n%s", err, help)
			}
			cmd := exec.CommandContext(ctx, bin)
			cmd.Dir = t.TempDir()
			var log bytes.Buffer
			cmd.Stderr = &log
			begin := time.Now()
			out, err := cmd.Output()
			if strings.Contains(log.String(), "msg=request") || strings.Contains(log.String(), "INFO request") {
				t.Errorf("lines of requests are among the output:\n%s", &log)
			}
			if err != nil || len(out) == 0 {
				t.Errorf("after %v: %v\n%s%s", time.Since(begin).Round(time.Millisecond), err, out, &log)
			}
			if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
				t.Errorf("it left %s behind", left[0].Name())
			}
			t.Logf("%v", time.Since(begin).Round(time.Millisecond))
		})
	}
}
