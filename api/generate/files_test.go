package generate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/heftai/heft/internal/testenv"
)

// TestGenerationConfigIsARegularFile: the start does not read a generation_config.json that is a
// folder, a device or a pipe; it blocked for ever on a named pipe.
func TestGenerationConfigIsARegularFile(t *testing.T) {
	dir := t.TempDir()
	err := os.Symlink(os.DevNull, filepath.Join(dir, "generation_config.json"))
	testenv.Need(t, "symlinks", err == nil, "a file system with symbolic links")
	_, err = ReadText("m", os.DirFS(dir))
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v, want an error of a file that is not regular", err)
	}
	_, err = ReadText("m", fstest.MapFS{})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: got %v, want none", err)
	}
}
