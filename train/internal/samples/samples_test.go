package samples

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type texts struct{}

func (texts) Append(b []byte, s string) []byte { return append(b, s...) }
func (texts) Decode(b []byte) (string, error)  { return string(b), nil }

// write makes a file of samples.
func write(t *testing.T, path string, list ...string) []byte {
	t.Helper()
	w, err := Create(path, "key", texts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit([]byte("info")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSamplesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	opens := []func(path, key string, c Codec[string]) (*File[string], error){Open[string], OpenWritten[string]}
	for k, list := range [][]string{{"one", "", "three", strings.Repeat("long", 1e5)}, {"four", "five"}, nil} {
		write(t, path, list...)
		f, err := opens[k%2](path, "key", texts{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Len() != len(list) || string(f.Info) != "info" {
			t.Errorf("got %d samples and %q", f.Len(), f.Info)
		}
		for i := len(list) - 1; i >= 0; i-- {
			if s, err := f.At(i); err != nil || s != list[i] {
				t.Errorf("sample %d: got %d bytes, %v", i, len(s), err)
			}
		}
		if _, err := f.At(len(list)); err == nil {
			t.Error("a sample behind the last one was read")
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, open := range opens {
		if _, err := open(path, "another", texts{}); !errors.Is(err, ErrOther) {
			t.Errorf("another key: %v", err)
		}
	}
}

// TestDamagedFilesAreFound changes and removes each byte of a file.
func TestDamagedFilesAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	whole := write(t, path, "one", "two")
	for i := range whole {
		for _, b := range [][]byte{append(bytes.Clone(whole[:i]), append([]byte{whole[i] ^ 4}, whole[i+1:]...)...), whole[:i]} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, "key", texts{}); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d: %v, want that the file is damaged", i, err)
			}
		}
	}
}

// TestADiscardedFileLeavesNothing: neither does one that is never committed.
func TestADiscardedFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "x"), "key", texts{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add("one"); err != nil {
		t.Fatal(err)
	}
	w.Discard()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left %v, %v", files, err)
	}
}
