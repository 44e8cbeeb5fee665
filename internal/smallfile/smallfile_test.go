package smallfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestADeviceIsNotReadAsAConfig: a link to /dev/zero never ends and a folder has no bytes; both
// are refused before anything is opened.
func TestADeviceIsNotReadAsAConfig(t *testing.T) {
	dir := t.TempDir()
	names := []string{dir}
	if _, err := os.Stat("/dev/zero"); err == nil {
		link := filepath.Join(dir, "config.json")
		if err := os.Symlink("/dev/zero", link); err != nil {
			t.Fatal(err)
		}
		names = append(names, link)
		if _, err := ReadFS(os.DirFS(dir), "config.json", 100); !errors.Is(err, ErrNotRegular) {
			t.Errorf("a link to /dev/zero in a folder: %v", err)
		}
	}
	for _, name := range names {
		if _, err := Read(name, 100); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFileIsReadUpToItsLimit: a file of the limit's size is read whole, a longer one is an
// error that states the limit, without reading it.
func TestAFileIsReadUpToItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte("x"), 1000)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{"f": {Data: want}}
	for name, read := range map[string]func(limit int64) ([]byte, error){
		"path": func(limit int64) ([]byte, error) { return Read(path, limit) },
		"fs":   func(limit int64) ([]byte, error) { return ReadFS(files, "f", limit) },
	} {
		if got, err := read(1000); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		var large *TooLargeError
		if _, err := read(999); !errors.As(err, &large) || large.Limit != 999 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(path+"?", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestAFileThatGrowsIsStillBounded: the size that the system reports is not trusted.
func TestAFileThatGrowsIsStillBounded(t *testing.T) {
	b, err := appendAll(make([]byte, 0, 2), bytes.NewReader([]byte("abcdefghij")))
	if err != nil || string(b) != "abcdefghij" {
		t.Errorf("%q, %v", b, err)
	}
}
