package kvstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/testenv"
)

// TestAFullDiskLosesValuesOnly: the disk is full before the store's limit. The store says so once, no half-written value
// is read, nor left, and it goes on when there is room.
func TestAFullDiskLosesValuesOnly(t *testing.T) {
	const room = 64 << 10
	disk := testenv.SmallDisk(t, room)
	dir := filepath.Join(disk, "kv")
	var w warnings
	s := open(t, dir, Options{Warn: w.warn})
	filler := filepath.Join(disk, "filler")
	fill := func(left int) {
		t.Helper()
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		info, _ := f.Stat()
		if err := f.Truncate(info.Size() - int64(left)); err != nil {
			t.Fatal(err)
		}
	}
	s.offerNow(t, "before")
	for i := range 4 {
		fill(i * 4096)
		name := fmt.Sprint("value ", i)
		s.offerNow(t, name)
		s.has(t, name) // it may be there, but whole
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	if !s.has(t, "before") || s.has(t, "value 0") {
		t.Error("a value that was there is missing, or one that had no room is there")
	}
	if w.count("free space") != 1 || w.count(dir) != 1 || len(w.lines) != 1 {
		t.Errorf("warnings %q, want one that names the folder and what helps", w.lines)
	}
	s.offerNow(t, "after")
	if !s.has(t, "after") {
		t.Error("a value is missing that was written when there was room")
	}
	if err := filepath.WalkDir(disk, func(path string, d os.DirEntry, err error) error {
		if err == nil && atomicfile.IsTemp(path) {
			t.Errorf("%s is left", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
