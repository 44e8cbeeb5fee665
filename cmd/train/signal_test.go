//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/finetune"
)

// begun starts train in a process of its own and returns once it has taken a step.
func begun(t *testing.T, args ...string) (cmd *exec.Cmd, stdout *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], append(args, "--log-steps", "1")...)
	cmd.Env = append(os.Environ(), "TEST_IS_TRAIN=1")
	stdout = new(bytes.Buffer)
	cmd.Stdout = stdout
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(said.String(), "step=1") {
		n, err := log.Read(buffer)
		said.Write(buffer[:n])
		if err != nil {
			t.Fatalf("no step was logged: %s", said.String())
		}
	}
	go io.Copy(io.Discard, log)
	return cmd, stdout
}

// endless are the arguments of a run that ends by a signal alone.
func endless(t *testing.T, dir, out string) []string {
	return []string{"run", "--model", dir, "--data", lessons(t, 24), "--output", out, "--max-steps", "1000000", "--batch", "1"}
}

func exitCode(err error) int {
	var status *exec.ExitError
	if !errors.As(err, &status) {
		return 0
	}
	return status.ExitCode()
}

// A run that Ctrl-C or SIGTERM ends saves after its step, leaves no lock and no model, and exits as
// shells expect it of an interrupted process: with 128 plus the signal's number.
func TestInterruptedTrainingSavesAndExits130(t *testing.T) {
	dir := tinyModel(t)
	for _, c := range []struct {
		signal syscall.Signal
		status int
		flags  []string
	}{{syscall.SIGINT, 130, nil}, {syscall.SIGTERM, 143, []string{"--num-processes", "2"}}, {syscall.SIGINT, 130, []string{"--json"}}} {
		out := filepath.Join(t.TempDir(), "out")
		cmd, stdout := begun(t, append(endless(t, dir, out), c.flags...)...)
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if got := exitCode(cmd.Wait()); got != c.status {
			t.Errorf("%v: status %d, want %d", c.signal, got, c.status)
		}
		var r finetune.Result
		if json.Unmarshal(stdout.Bytes(), &r) != nil && !strings.Contains(stdout.String(), "Stopped and saved") || len(c.flags) == 1 && !r.Stopped {
			t.Errorf("%v: it says %s", c.signal, stdout)
		}
		if _, err := train.LatestCheckpoint(out); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"model.safetensors", ".heft-train.lock"} {
			if _, err := os.Stat(filepath.Join(out, name)); err == nil {
				t.Errorf("%v: %s was left", c.signal, name)
			}
		}
	}
}

// A launcher passes SIGTERM on to its ranks, waits until they have saved, and exits like them. A
// terminal sends SIGINT to all of them: the launcher's signal that follows must not end them.
func TestInterruptedLaunchSaves(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	out := filepath.Join(t.TempDir(), "out")
	args := endless(t, tinyModel(t), out)
	cmd, stdout := begun(t, append([]string{"launch", "--num_processes", "2"}, args...)...)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(cmd.Wait()); got != 143 || !strings.Contains(stdout.String(), "Stopped and saved") {
		t.Errorf("status %d, want 143: %s", got, stdout)
	}
	if _, err := train.LatestCheckpoint(out); err != nil {
		t.Error(err)
	}
}

// Two runs on one output folder would overwrite each other's checkpoints.
func TestSecondRunOnOneOutputIsRefused(t *testing.T) {
	dir, out := tinyModel(t), filepath.Join(t.TempDir(), "out")
	first, _ := begun(t, endless(t, dir, out)...)
	second := exec.CommandContext(t.Context(), os.Args[0], endless(t, dir, out)...)
	second.Env = append(os.Environ(), "TEST_IS_TRAIN=1")
	said, err := second.CombinedOutput()
	want := fmt.Sprintf("process %d", first.Process.Pid)
	if got := exitCode(err); got != 1 || !strings.Contains(string(said), want) || !strings.Contains(string(said), out) {
		t.Errorf("the second run: status %d, want 1 and a message with %q and %s: %s", got, want, out, said)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // it was killed
	if _, err := os.Stat(filepath.Join(out, ".heft-train.lock")); err != nil {
		t.Fatalf("a killed run is to leave its lock file for this test: %v", err)
	}
	third, _ := begun(t, endless(t, dir, out)...)
	if err := third.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(third.Wait()); got != 130 {
		t.Errorf("the run after the killed one: status %d, want 130", got)
	}
}
