//go:build unix

package repl

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestAPipeAsHistoryBlockedTheChat: the chat waited for a writer, and read /dev/zero without end.
func TestAPipeAsHistoryBlockedTheChat(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		if _, err := OpenHistory(path); err == nil {
			t.Errorf("%s: got no error", path)
		}
	}
	h := &History{path: pipe}
	h.Add("kept in memory")
	if h.Len() != 1 {
		t.Errorf("got %d lines, want 1", h.Len())
	}
}
