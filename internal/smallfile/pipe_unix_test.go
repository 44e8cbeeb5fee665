//go:build unix

package smallfile

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/heftai/heft/internal/testenv"
)

// TestAPipeDoesNotBlock: a config.json that is a named pipe is refused, without waiting for a
// writer.
func TestAPipeDoesNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	testenv.Need(t, "pipes", syscall.Mkfifo(path, 0o600) == nil, "a file system with named pipes")
	if _, err := Read(path, 100); !errors.Is(err, ErrNotRegular) {
		t.Errorf("%v", err)
	}
}
