package probe

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// Folder measures the disk of a folder that is not there yet, and leaves nothing in it.
func TestFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "b")
	rate, err := Folder(context.Background(), folder, Options{})
	if err != nil || !(rate.BytesPerSecond > 0) || rate.File != folder {
		t.Fatalf("%+v, error %v", rate, err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, error %v", left, err)
	}
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(context.Background(), file, Options{}); err == nil {
		t.Error("a file passes for a folder")
	}
}
