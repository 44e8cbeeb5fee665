//go:build unix

package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterruptEndsASlowStart: files that are slow to come, here a pipe without a writer,
// do not keep Ctrl-C from ending the process.
func TestInterruptEndsASlowStart(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "config.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p := exec.CommandContext(ctx, executable, underTest, "--port", "0", "--model", dir)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once the server reads
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // by the signal
	if ctx.Err() != nil {
		t.Error("the server went on")
	}
}

// TestPortThatIsTaken says what to do.
func TestPortThatIsTaken(t *testing.T) {
	p := start(t)
	defer func() { _ = p.Process.Kill(); <-p.end }()
	status, _, stderr := invoke("--port", p.url[len("http://127.0.0.1:"):])
	if status != 1 || !strings.Contains(stderr, "choose another --port") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestNobodyWaitsInAQueueOfNone: --max-queue 0 refuses what finds no free place, instead of
// taking the default.
func TestNobodyWaitsInAQueueOfNone(t *testing.T) {
	p := start(t, "--max-batch", "1", "--max-queue", "0", "--max-model-len", "2000")
	defer func() { _ = p.Process.Kill(); <-p.end }()
	p.stream(t, 1900)
	answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
}
