package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/filelock"
	"github.com/heftai/heft/internal/testenv"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s holds %q (%v), want %q", path, b, err, want)
	}
}

func TestWriteFileReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, text := range []string{"one", "2"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, text)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a.json"}) {
		t.Errorf("the folder holds %q", got)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "a"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a missing folder: %v", err)
	}
}

func TestFailedWriteLeavesOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of the n")
		if got := names(t, dir); len(got) != 2 || !IsTemp(got[0]) {
			t.Errorf("while it is written the folder holds %q", got)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	wantFile(t, path, "old")
	if got := names(t, dir); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the folder holds %q", got)
	}
}

// A device that is always full stands for a full disk.
func TestFullDiskIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	testenv.Need(t, "devfull", err == nil, "the device /dev/full")
	defer full.Close()
	f := &File{File: full, path: filepath.Join(t.TempDir(), "a"), done: true}
	if _, err := f.WriteString("text"); err == nil {
		t.Error("a full disk is no error")
	}
}

func TestCommitKeepsPermissionsAndReplacesLinks(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(secret, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 && !closeBeforeRename {
		t.Errorf("permissions are %v (%v), want 0600", info.Mode(), err)
	}
	link := filepath.Join(dir, "link")
	testenv.Need(t, "symlinks", os.Symlink("secret", link) == nil, "a file system with symbolic links")
	if err := WriteFile(link, []byte("y")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, link, "y")
	wantFile(t, secret, "x")
}

// stale leaves the temporary file of a killed writer of path.
func stale(t *testing.T, path string) string {
	t.Helper()
	name := tempName(path)
	if err := os.WriteFile(name, []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * unlockedGap)
	if err := os.Chtimes(name, past, past); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestStaleTemporaryFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	mine, other := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	stale(t, mine)
	left := stale(t, other)
	live, err := Create(mine)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Discard()
	want := []string{filepath.Base(live.Name()), filepath.Base(left)}
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("after Create the folder holds %q, want %q", got, want)
	}
	RemoveStale(dir)
	if got := names(t, dir); !slices.Equal(got, []string{filepath.Base(live.Name())}) {
		t.Errorf("after RemoveStale the folder holds %q, want %q", got, live.Name())
	}
	if err := WriteFile(mine, []byte("other writer")); err != nil {
		t.Fatal(err)
	}
	if _, err := live.WriteString("last"); err != nil {
		t.Fatal(err)
	}
	if err := live.Commit(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, mine, "last")
}

func TestStaleWithoutLocksIsTheOld(t *testing.T) {
	tryLock = func(*os.File) error { return errors.ErrUnsupported }
	defer func() { tryLock = filelock.Try }()
	dir := t.TempDir()
	fresh, old := tempName(filepath.Join(dir, "a")), tempName(filepath.Join(dir, "b"))
	past := time.Now().Add(-2 * withoutLocks)
	for _, name := range []string{fresh, old} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	RemoveStale(dir)
	if got := names(t, dir); !slices.Equal(got, []string{filepath.Base(fresh)}) {
		t.Errorf("the folder holds %q", got)
	}
}

func TestBatchRenamesAllAfterTheLast(t *testing.T) {
	dir := t.TempDir()
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	b, err := NewBatch(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	for _, name := range []string{"one", "two"} {
		temp, err := b.Write(name, text(name))
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, filepath.Join(dir, temp), name)
	}
	if _, err := b.Write("three", func(io.Writer) error { return errors.ErrUnsupported }); err == nil {
		t.Error("a file that cannot be written is no error")
	}
	RemoveStale(dir) // as another process does: the batch is alive
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(dir, "one"), "one")
	if got := names(t, dir); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the folder holds %q", got)
	}
}

func TestLongNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("é", 120)+".safetensors")
	if err := WriteFile(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, "x")
}

// TestErrorsNamedTemporaryFiles: a folder that is not there was an error about a name that no user has written.
func TestErrorsNamedTemporaryFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "x.json")
	_, err := Create(path)
	if of := (*os.PathError)(nil); !errors.As(err, &of) || of.Path != path || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error of %s", err, path)
	}
}
