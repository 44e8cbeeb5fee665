package hostmem

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWritesAreToldFromTouches: writing and truncating are writes; a new date and new permissions are
// not. Two watches of one file see the same.
func TestWritesAreToldFromTouches(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	watch := func() *Writes {
		t.Helper()
		w, err := WatchWrites(path)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	first := watch()
	defer first.Close()
	want := func(what string, w *Writes, written, touched bool) {
		t.Helper()
		if gotWritten, gotTouched := w.Changes(); gotWritten != written || gotTouched != touched {
			t.Errorf("%s: written %t, touched %t; want %t, %t", what, gotWritten, gotTouched, written, touched)
		}
	}
	want("nothing", first, false, false)
	if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	second := watch()
	want("a new date", first, false, true)
	want("nothing more", first, false, false)
	want("a later watch", second, false, false)
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	want("cut", first, true, false)
	second.Close()
	want("cut, after its end", second, true, false)
	third := watch()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	f.Close()
	want("written", third, true, false)
	third.Close()
	want("none", nil, true, false)
}
