package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/store"
)

func Example() {
	s := store.NewMemory(1<<20, nil)
	_ = s.Put("owner", "resp_1", []byte("an answer"))
	value, _ := s.Get("owner", "resp_1", nil)
	fmt.Println(string(value))
	_, err := s.Get("another owner", "resp_1", nil)
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output:
	// an answer
	// true
}

// stores returns both kinds of stores, with a way to open them again.
func stores(t *testing.T, limit int64) map[string]func() *store.Store {
	dir := filepath.Join(t.TempDir(), "made")
	memory := store.NewMemory(limit, nil)
	return map[string]func() *store.Store{
		"memory": func() *store.Store { return memory },
		"disk": func() *store.Store {
			s, err := store.Open(dir, limit)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

func get(s *store.Store, owner, id string) string {
	v, err := s.Get(owner, id, nil)
	if err != nil {
		return err.Error()
	}
	return string(v)
}

func TestObjectsBelongToOwners(t *testing.T) {
	missing := store.ErrNotFound.Error()
	for name, open := range stores(t, 1<<20) {
		s := open()
		check := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s: got %q, want %q", name, what, got, want)
			}
		}
		for _, o := range []string{"a", "b"} {
			if err := s.Put(o, "../../x", []byte("of "+o)); err != nil {
				t.Fatal(err)
			}
		}
		s = open()
		check("a", get(s, "a", "../../x"), "of a")
		check("b", get(s, "b", "../../x"), "of b")
		check("no owner", get(s, "", "../../x"), missing)
		check("owner and id are apart", get(s, "a\x00..", "/../x"), missing)
		if err := s.Delete("", "../../x"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: deleting what another owns: %v", name, err)
		}
		if err := s.Delete("a", "../../x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		check("deleted", get(open(), "a", "../../x"), missing)
		check("of b after that of a is deleted", get(open(), "b", "../../x"), "of b")
	}
}

func TestTheLeastRecentlyUsedIsDropped(t *testing.T) {
	for name, open := range stores(t, 3*8192) {
		s := open()
		value := bytes.Repeat([]byte{7}, 7000) // two blocks of a file system
		for _, id := range []string{"1", "2", "3"} {
			if err := s.Put("", id, value); err != nil {
				t.Fatal(err)
			}
		}
		get(s, "", "1")
		if err := s.Put("", "4", bytes.Clone(value)); err != nil {
			t.Fatal(err)
		}
		for id, there := range map[string]bool{"1": true, "2": false, "3": true, "4": true} {
			if _, err := s.Get("", id, nil); (err == nil) != there {
				t.Errorf("%s: object %s: %v", name, id, err)
			}
		}
		if err := s.Put("", "5", make([]byte, 30000)); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: an object larger than the limit: %v", name, err)
		}
		s.Resize(8192)
		kept := 0
		for _, id := range []string{"1", "3", "4"} {
			if _, err := s.Get("", id, nil); err == nil {
				kept++
			}
		}
		if kept != 1 {
			t.Errorf("%s: %d objects are left in the memory of one", name, kept)
		}
	}
}

func TestMemoryIsCounted(t *testing.T) {
	var held int64
	s := store.NewMemory(1<<16, func(n int64) { held += n })
	for i := range 100 {
		if err := s.Put("", fmt.Sprint(i), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if held < 1000 || held > 1<<16 {
			t.Fatalf("after %d objects %d bytes are held", i+1, held)
		}
	}
	s.Resize(0)
	if held != 0 {
		t.Errorf("an empty store holds %d bytes", held)
	}
}

// files are the paths of a store's files.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestADamagedFileIsSkippedWithALine(t *testing.T) {
	damage := map[string]func(b []byte) []byte{
		"cut":          func(b []byte) []byte { return b[:len(b)-3] },
		"empty":        func([]byte) []byte { return nil },
		"longer":       func(b []byte) []byte { return append(b, 1) },
		"another file": func([]byte) []byte { return bytes.Repeat([]byte("x"), 300) },
		"flipped bit":  func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
	}
	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := store.Open(dir, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"bad", "good"} {
				if err := s.Put("", id, []byte(id+" contents")); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range files(t, dir) {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(b, []byte("bad contents")) {
					continue
				}
				if err := os.WriteFile(path, spoil(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log strings.Builder
			old := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(old)
			if s, err = store.Open(dir, 1<<20); err != nil {
				t.Fatal(err)
			}
			if got := get(s, "", "bad"); got != store.ErrNotFound.Error() {
				t.Errorf("the damaged object: %q", got)
			}
			if got := get(s, "", "good"); got != "good contents" {
				t.Errorf("the other object: %q", got)
			}
			if !strings.Contains(log.String(), "damaged") || !strings.Contains(log.String(), ".object") {
				t.Errorf("the log does not name the file: %q", log.String())
			}
		})
	}
}

// TestTheOrderOfUseSurvives: the objects that a new process drops first are those that were not used.
func TestTheOrderOfUseSurvives(t *testing.T) { orderOfUse(t, -time.Hour) }

// TestAClockSetBackKeptOldObjects: objects from before the clock was set back stayed, and those used since were dropped.
func TestAClockSetBackKeptOldObjects(t *testing.T) { orderOfUse(t, time.Hour) }

// orderOfUse stores two objects at a time relative to now, uses one, and checks that the other is dropped.
func orderOfUse(t *testing.T, stored time.Duration) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2"} {
		if err := s.Put("", id, []byte(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range files(t, dir) {
		old := time.Now().Add(stored)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	get(s, "", "1")
	if s, err = store.Open(dir, 4096); err != nil {
		t.Fatal(err)
	}
	if get(s, "", "1") != "1" || get(s, "", "2") == "2" {
		t.Error("the object that was used last was dropped")
	}
}

func TestAFolderThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(file, 1); err == nil {
		t.Error("a file is not a folder")
	}
}

// TestReservedBytesAreNotDropped: objects are dropped for them, and they never exceed the limit.
func TestReservedBytesAreNotDropped(t *testing.T) {
	for name, open := range stores(t, 1<<16) {
		s := open()
		if err := s.Put("", "1", make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := s.Reserve(1<<16 - 100); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get("", "1", nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: an object stayed beside reserved bytes: %v", name, err)
		}
		if err := s.Reserve(101); !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: more bytes than the limit: %v", name, err)
		}
		if err := s.Put("", "2", make([]byte, 1000)); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: an object beside reserved bytes: %v", name, err)
		}
		if err := s.Reserve(100 - 1<<16); err != nil {
			t.Error(err)
		}
		if err := s.Put("", "2", make([]byte, 1000)); err != nil {
			t.Errorf("%s: after the bytes were freed: %v", name, err)
		}
	}
}
