package loader

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnchanged: a file that was written to is told by its date, mapped or not, and one that
// took its name is not meant.
func TestUnchanged(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		dir := save(t, 0, floats("w", 1))
		ck := open(t, dir)
		file := ck.Files()[0]
		if h, _ := ck.Lookup("w"); mapped {
			if _, err := h.Bytes(); err != nil {
				t.Fatal(err)
			}
		}
		if err := file.Unchanged(); err != nil {
			t.Errorf("mapped %t: %v", mapped, err)
		}
		info, err := os.Stat(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		for _, moved := range []time.Duration{time.Nanosecond, -time.Hour} { // clocks jump
			if err := os.Chtimes(file.Path, time.Time{}, info.ModTime().Add(moved)); err != nil {
				t.Fatal(err)
			}
			if err := file.Unchanged(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "overwritten") {
				t.Errorf("mapped %t, written %v later: %v", mapped, moved, err)
			}
		}
		if err := ck.Unchanged(); mapped != (err != nil) {
			t.Errorf("the checkpoint, mapped %t: %v", mapped, err)
		}
		if err := os.Chtimes(file.Path, time.Time{}, info.ModTime()); err != nil {
			t.Fatal(err)
		}
		if err := Save(dir, slices.Values([]NamedTensor{floats("w", 2)}), SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := file.Unchanged(); err != nil {
			t.Errorf("mapped %t, another file has the name: %v", mapped, err)
		}
	}
}

// TestATouchedFileIsUnchanged: a file with a new date and the contents that were hashed is the same
// one; with one other byte, another length, or a date that is older than the hash, it is not.
func TestATouchedFileIsUnchanged(t *testing.T) {
	for _, drop := range []bool{false, true} {
		dir := save(t, 0, floats("w", 1, 2, 3, 4))
		ck := open(t, dir)
		file := ck.Files()[0]
		whole, err := os.ReadFile(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1e9, 0)
		put := func(b []byte) {
			t.Helper()
			at = at.Add(time.Second)
			err := os.WriteFile(file.Path, b, 0o600) // the same inode
			if err == nil {
				err = os.Chtimes(file.Path, at, at)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := ck.HashFiles(context.Background(), drop, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			put(whole)
			if err := file.Unchanged(); err != nil || ck.Epoch() != uint64(i+1) {
				t.Errorf("touched: %v, epoch %d", err, ck.Epoch())
			}
		}
		if n := testing.AllocsPerRun(10, func() { _ = file.Unchanged() }); n != 0 {
			t.Errorf("asking for a known date allocates %v times", n)
		}
		for _, other := range [][]byte{append(slices.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1), whole[:len(whole)-1]} {
			put(other)
			if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
				t.Errorf("%d bytes, changed: %v", len(other), err)
			}
		}
		put(whole)
		if err := file.Unchanged(); err != nil {
			t.Errorf("restored: %v", err)
		}
	}
	touched := open(t, save(t, 0, floats("w", 1)))
	file := touched.Files()[0]
	if err := os.Chtimes(file.Path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := touched.HashFiles(context.Background(), false, nil); err != nil {
		t.Fatal(err)
	}
	if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
		t.Errorf("touched before it was hashed: %v", err)
	}
}

// TestWhatIsReadWhileAFileChangesIsReadAgain: a file that was overwritten and restored while it was
// read has the right contents afterwards, and what was read of it is not to be used.
func TestWhatIsReadWhileAFileChangesIsReadAgain(t *testing.T) {
	ck := open(t, save(t, 0, floats("w", 1, 2)))
	file := ck.Files()[0]
	if err := ck.HashFiles(context.Background(), false, nil); err != nil {
		t.Fatal(err)
	}
	reads := 0
	err := file.ReadUnchanged(func() error {
		if reads++; reads == 1 {
			return os.Chtimes(file.Path, time.Unix(1, 0), time.Unix(1, 0))
		}
		return nil
	})
	if err != nil || reads != 2 {
		t.Errorf("%d reads, %v", reads, err)
	}
	failed := errors.New("failed")
	if err := file.ReadUnchanged(func() error { return failed }); err != failed {
		t.Error(err)
	}
}
