package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/smallfile"
)

// TestAStateFileHasALimit: a file of any size was read whole.
func TestAStateFileHasALimit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ScalerFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, smallfile.State+1); err != nil { // sparse
		t.Fatal(err)
	}
	var large *smallfile.TooLargeError
	if _, err := ReadJSON[any](&Reading{Dir: dir}, ScalerFile); !errors.As(err, &large) {
		t.Errorf("got %v, want a *smallfile.TooLargeError", err)
	}
}
