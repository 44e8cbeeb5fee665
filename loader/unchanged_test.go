package loader

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/testenv"
)

// TestUnchanged: a file that was written to is recognised by its date, mapped or not, and one that
// took its name is not meant.
func TestUnchanged(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		dir := save(t, 0, vector("w", 1))
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
		if err := Save(dir, slices.Values([]NamedTensor{vector("w", 2)}), SaveOptions{}); err != nil {
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
		dir := save(t, 0, vector("w", 1, 2, 3, 4))
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
}

// TestAFileTouchedBeforeItIsHashedIsUnchanged: until the first hash was complete a new date ended
// service. Where the system tells a touch from a write, a touched file is the same one, and hashed
// later; one that was written to never is.
func TestAFileTouchedBeforeItIsHashedIsUnchanged(t *testing.T) {
	needWatches(t)
	ck := open(t, save(t, 0, vector("w", 1)))
	file := ck.Files()[0]
	whole, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		touch(t, file, int64(i))
		for range 2 {
			if err := file.Unchanged(); err != nil || ck.Epoch() != uint64(i+1) {
				t.Errorf("touched: %v, epoch %d", err, ck.Epoch())
			}
		}
	}
	if err := ck.HashFiles(context.Background(), false, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Path, whole, 0o600); err != nil { // the same bytes
		t.Fatal(err)
	}
	if err := file.Unchanged(); err != nil {
		t.Errorf("written again with the same bytes, after it was hashed: %v", err)
	}
}

// needWatches skips a test where the system cannot tell a touch from a write.
func needWatches(t *testing.T) {
	t.Helper()
	watch, err := hostmem.WatchWrites(t.TempDir())
	testenv.Need(t, "inotify", err == nil, "inotify")
	watch.Close()
}

// touch gives a file another date.
func touch(t *testing.T, file *File, seconds int64) {
	t.Helper()
	if err := os.Chtimes(file.Path, time.Unix(seconds, 0), time.Unix(seconds, 0)); err != nil {
		t.Fatal(err)
	}
}

// TestAFileWrittenBeforeItIsHashedIsChanged: whatever date it has then, and however it was touched.
func TestAFileWrittenBeforeItIsHashedIsChanged(t *testing.T) {
	needWatches(t)
	for name, prepare := range map[string]func(file *File){
		"written":              func(*File) {},
		"touched and written":  func(file *File) { touch(t, file, 1) },
		"accepted and written": func(file *File) { touch(t, file, 1); _ = file.Unchanged() },
	} {
		ck := open(t, save(t, 0, vector("w", 1)))
		file := ck.Files()[0]
		prepare(file)
		info, err := os.Stat(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		other[len(other)-1] ^= 1
		if err := os.WriteFile(file.Path, other, 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "accepted and written" { // and with the date that was accepted
			if err := os.Chtimes(file.Path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
		for _, when := range []string{"", ", and hashed then"} {
			if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
				t.Errorf("%s%s: %v", name, when, err)
			}
			if err := ck.HashFiles(context.Background(), false, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestReadsDuringAChangeOfTheFileAreRepeated: a file that was overwritten and restored while it was
// read has the right contents afterwards, and the bytes read from it must not be used.
func TestReadsDuringAChangeOfTheFileAreRepeated(t *testing.T) {
	ck := open(t, save(t, 0, vector("w", 1, 2)))
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

// TestAnEqualFileRenamedOverAShardEndedService: a shard that was written again and renamed, before it was used, ended
// service although its bytes were the same. It is the file from then on; one with other bytes is not.
func TestAnEqualFileRenamedOverAShardEndedService(t *testing.T) {
	needWatches(t)
	rename := func(file *File, b []byte) { takeName(t, file, b) }
	for _, hashed := range []bool{false, true} {
		dir := save(t, 0, vector("w", 1, 2, 3))
		ck := open(t, dir)
		file := ck.Files()[0]
		whole, err := os.ReadFile(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		if hashed {
			if err := ck.HashFiles(context.Background(), false, nil); err != nil {
				t.Fatal(err)
			}
		}
		other := slices.Clone(whole)
		other[len(other)-1] ^= 1
		rename(file, other)
		if err := ck.Verify(); !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("hashed %t, other bytes: %v", hashed, err)
		}
		rename(file, whole)
		if err := ck.Verify(); err != nil {
			t.Errorf("hashed %t, the same bytes: %v", hashed, err)
		}
		rename(file, whole)
		if err := file.Unchanged(); err != nil {
			t.Errorf("hashed %t, the same bytes again: %v", hashed, err)
		}
		h, _ := ck.Lookup("w")
		if _, err := h.Bytes(); err != nil || ck.Epoch() != 2 {
			t.Errorf("hashed %t: %v, epoch %d, want 2", hashed, err, ck.Epoch())
		}
		if err := ck.Unchanged(); err != nil {
			t.Errorf("hashed %t, mapped: %v", hashed, err)
		}
		if err := os.WriteFile(file.Path, other, 0o600); err != nil { // the one that has the name is watched
			t.Fatal(err)
		}
		if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
			t.Errorf("hashed %t, overwritten then: %v", hashed, err)
		}
	}
}

// takeName renames a file with other contents, or the same, to the name of file.
func takeName(t *testing.T, file *File, b []byte) {
	t.Helper()
	err := os.WriteFile(file.Path+".new", b, 0o600)
	if err == nil {
		err = os.Rename(file.Path+".new", file.Path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAFileThatWasWrittenToIsNotCompared: its mapped bytes are not the original ones.
func TestAFileThatWasWrittenToIsNotCompared(t *testing.T) {
	needWatches(t)
	ck := open(t, save(t, 0, vector("w", 1)))
	file := ck.Files()[0]
	whole, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Path, append(slices.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1), 0o600); err != nil {
		t.Fatal(err)
	}
	takeName(t, file, whole)
	if err := ck.Verify(); !errors.Is(err, ErrChanged) {
		t.Errorf("written to before another file took the name: %v", err)
	}
}

// TestAFileIsKnownFromAnEarlierProcess: a file that was written again in place with the same bytes, before it was hashed,
// ended service. If an earlier process has hashed it, it is compared; other bytes are still a change. Hashes of files that
// have changed between the processes are not used.
func TestAFileIsKnownFromAnEarlierProcess(t *testing.T) {
	dir, folder := save(t, 0, vector("w", 1, 2, 3)), filepath.Join(t.TempDir(), "made")
	begin := func() (*Checkpoint, *File) {
		ck := open(t, dir)
		ck.KeepHashes(folder)
		return ck, ck.Files()[0]
	}
	ck, file := begin()
	whole, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(whole)
	other[len(other)-1] ^= 1
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(file.Path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		touch(t, file, int64(b[len(b)-1])) // whatever the resolution of dates
	}
	if err := ck.HashFiles(context.Background(), false, nil); err != nil {
		t.Fatal(err)
	}
	reads := func(ck *Checkpoint) (n int) {
		t.Helper()
		if err := ck.HashFiles(context.Background(), false, func(context.Context) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ck, file = begin()
	if n := reads(ck); n != 0 {
		t.Errorf("the second process hashes the file again, with %d reads", n)
	}
	ck, file = begin()
	write(whole)
	if err := file.Unchanged(); err != nil || ck.Epoch() != 1 {
		t.Errorf("written again with the same bytes: %v, epoch %d", err, ck.Epoch())
	}
	write(other)
	if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
		t.Errorf("written with other bytes: %v", err)
	}
	_, file = begin() // with other bytes than the kept hash is of
	write(whole)
	if err := file.Unchanged(); !errors.Is(err, ErrChanged) {
		t.Errorf("written with the bytes of an earlier process: %v", err)
	}
	ck, _ = begin()
	if n := reads(ck); n == 0 {
		t.Error("a file that has changed since it was hashed is not hashed again")
	}
	damageHashes(t, folder)
	ck, file = begin()
	if n := reads(ck); n == 0 || file.Unchanged() != nil {
		t.Errorf("with damaged hashes: %d reads, %v", n, file.Unchanged())
	}
}

// damageHashes damages the one file of hashes in folder.
func damageHashes(t *testing.T, folder string) {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(folder, "hashes-*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%v %v, want one file of hashes", kept, err)
	}
	if err := os.WriteFile(kept[0], []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
}
