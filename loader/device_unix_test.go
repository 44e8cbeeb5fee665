//go:build unix

package loader

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpenRefusesDevices: a pipe would block for ever, a device would never end.
func TestOpenRefusesDevices(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "model.safetensors")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, filepath.Dir(pipe), "/dev/zero"} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
