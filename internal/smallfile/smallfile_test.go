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
	for _, missing := range []string{path + "?", filepath.Join(path, "below", "a file")} {
		if _, err := Read(missing, 10); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want an error that it does not exist", missing, err)
		}
	}
}

// TestAFileThatGrowsIsStillBounded: the size that the system reports is not trusted.
func TestAFileThatGrowsIsStillBounded(t *testing.T) {
	b, err := appendAll(make([]byte, 0, 2), bytes.NewReader([]byte("abcdefghij")))
	if err != nil || string(b) != "abcdefghij" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestAPointerOfGitLFSIsNotReadAsTheFile: a clone without Git LFS has pointers in place of large files,
// such as tokenizer.json. The error says what to do, not that the JSON is wrong.
func TestAPointerOfGitLFSIsNotReadAsTheFile(t *testing.T) {
	const text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9085657\n"
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(path, Config)
	_, fsErr := ReadFS(os.DirFS(filepath.Dir(path)), "tokenizer.json", Config)
	for _, err := range []error{err, fsErr} {
		if !errors.Is(err, ErrPointer) || !bytes.Contains([]byte(err.Error()), []byte("tokenizer.json")) {
			t.Errorf("got %v, want ErrPointer with the file's name", err)
		}
	}
}
