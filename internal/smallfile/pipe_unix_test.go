//go:build unix

package smallfile

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAPipeDoesNotBlock: a config.json that is a named pipe is refused, without waiting for a
// writer.
func TestAPipeDoesNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes here:", err)
	}
	if _, err := Read(path, 100); !errors.Is(err, ErrNotRegular) {
		t.Errorf("%v", err)
	}
}
