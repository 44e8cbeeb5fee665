package kvstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/testenv"
)

const valueBytes = 10_000

// values is a source of values that their keys determine.
type values struct{}

func (values) Value(key Key) ([]byte, bool) { return valueOf(key), key.Part >= 0 }

func valueOf(key Key) []byte {
	return bytes.Repeat(key.ID[:], valueBytes/len(key.ID)+1)[:valueBytes]
}

func keyOf(name string) Key { return Key{ID: sha256.Sum256([]byte(name))} }

// warnings collects lines.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) warn(message string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, message+fmt.Sprint(args...))
}

func (w *warnings) count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func open(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	if o.Limit == 0 {
		o.Limit = 1 << 30
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// offer writes a value and waits for it.
func (s *Store) offerNow(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		s.Offer(keyOf(name), 0, values{})
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// has reports whether a value is read, and fails if it is read wrong.
func (s *Store) has(t *testing.T, name string) bool {
	t.Helper()
	value := make([]byte, valueBytes)
	ok := s.Get(keyOf(name), 0, value)
	if ok && !bytes.Equal(value, valueOf(keyOf(name))) {
		t.Fatalf("%s was read wrong", name)
	}
	return ok
}

func TestValuesOutliveTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	first := open(t, dir, Options{})
	first.offerNow(t, "a", "b")
	other := open(t, dir, Options{}) // another process, as far as the files are concerned
	if !other.has(t, "a") || !other.has(t, "b") || other.has(t, "c") {
		t.Errorf("a second store of the folder reads something else")
	}
	other.offerNow(t, "a")
	if st := other.Stats(); st.Written != 0 || st.Hits != 2 || st.Misses != 1 || st.ReadBytes != 2*valueBytes {
		t.Errorf("the second store counts %+v", st)
	}
	if a, b := first.Derive([]byte("m")), other.Derive([]byte("m")); a != b || a == first.Derive([]byte("n")) {
		t.Error("secrets of a context are not those of the folder")
	}
	if st := first.Stats(); st.Written != 2 || st.Bytes != 2*sizeOf(valueBytes) {
		t.Errorf("the first store counts %+v", st)
	}
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	testenv.Need(t, "modes", checksModes, "a system with permissions")
	dir := filepath.Join(t.TempDir(), "kv")
	open(t, dir, Options{}).offerNow(t, "a")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: permissions %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// damage changes the file of a value.
var damages = map[string]func(s *Store, path string) error{
	"a bit": func(_ *Store, path string) error {
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)-1] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	},
	"its length": func(_ *Store, path string) error { return os.Truncate(path, 500) },
	"empty":      func(_ *Store, path string) error { return os.Truncate(path, 0) },
	"zeros": func(_ *Store, path string) error {
		return os.WriteFile(path, make([]byte, headerBytes+valueBytes), 0o600)
	},
	"another value": func(s *Store, path string) error {
		b, err := os.ReadFile(s.path(keyOf("b")))
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		return err
	},
	"a link": func(s *Store, path string) error {
		target := path + ".elsewhere"
		if err := os.Rename(path, target); err != nil {
			return err
		}
		return os.Symlink(target, path)
	},
	"a folder": func(_ *Store, path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	},
}

func TestADamagedFileIsAbsentWithOneLine(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			var w warnings
			s := open(t, t.TempDir(), Options{Warn: w.warn})
			s.offerNow(t, "a", "b")
			err := damage(s, s.path(keyOf("a")))
			testenv.Need(t, "symlinks", err == nil || name != "a link", "a file system with symbolic links")
			if err != nil {
				t.Fatal(err)
			}
			if s.has(t, "a") || !s.has(t, "b") || s.Stats().Damaged != 1 || w.count("is ignored") != 1 {
				t.Errorf("got %+v and %q", s.Stats(), w.lines)
			}
			s.offerNow(t, "a")
			if again := s.has(t, "a"); again != (name != "a folder") {
				t.Errorf("written again: %v", again)
			}
		})
	}
}

func TestALostSecretMakesValuesAbsent(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Options{}).offerNow(t, "a")
	if err := os.WriteFile(filepath.Join(dir, secretName), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	var w warnings
	s := open(t, dir, Options{Warn: w.warn})
	if s.has(t, "a") || w.count("secret") != 1 {
		t.Errorf("a value of another secret was read; lines %q", w.lines)
	}
}

// diskUse is the size of all files below pages.
func diskUse(t *testing.T, dir string) (bytes int64, temporary int) {
	t.Helper()
	_ = filepath.WalkDir(filepath.Join(dir, pagesDir), func(path string, d fs.DirEntry, err error) error {
		if info, e := d.Info(); err == nil && e == nil && info.Mode().IsRegular() {
			bytes += sizeOf(info.Size() - headerBytes)
			if atomicfile.IsTemp(path) {
				temporary++
			}
		}
		return nil
	})
	return bytes, temporary
}

// clock is a time that moves by a second with each look.
func clock() func() time.Time {
	at := time.Unix(1_000_000_000, 0)
	var mu sync.Mutex
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
}

func TestTheLeastRecentlyUsedIsEvicted(t *testing.T) {
	s := open(t, t.TempDir(), Options{Limit: 10 * sizeOf(valueBytes), now: clock()})
	for i := range 10 {
		s.offerNow(t, fmt.Sprint(i))
	}
	if !s.has(t, "0") { // used again
		t.Fatal("the first value is absent before the limit")
	}
	s.offerNow(t, "1", "new")
	for name, want := range map[string]bool{"0": true, "1": true, "2": false, "3": false, "4": true, "9": true, "new": true} {
		if s.has(t, name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	if st := s.Stats(); st.Evicted != 2 || st.Bytes != 9*sizeOf(valueBytes) {
		t.Errorf("got %+v", st)
	}
}

// TestAClockThatIsSetBackEvictedNewValues: when the clock was set back, values that were used before stayed, and each
// new one was the next to be evicted.
func TestAClockThatIsSetBackEvictedNewValues(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	s := open(t, t.TempDir(), Options{Limit: 4 * sizeOf(valueBytes), now: func() time.Time { now = now.Add(time.Second); return now }})
	s.offerNow(t, "old 0", "old 1", "old 2", "old 3")
	now = now.Add(-3 * time.Hour)
	if !s.has(t, "old 0") { // used after the change
		t.Fatal("the first value is absent before the limit")
	}
	for i := range 3 {
		s.offerNow(t, fmt.Sprint("new ", i))
	}
	for name, want := range map[string]bool{"old 1": false, "old 2": false, "old 3": false, "new 1": true, "new 2": true} {
		if s.has(t, name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
}

// Of values of one time those of prefixes stay.
func TestDeeperValuesAreEvictedFirst(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	s := open(t, t.TempDir(), Options{Limit: 4 * sizeOf(valueBytes), now: func() time.Time { return now }})
	for i := range 4 {
		s.Offer(keyOf(fmt.Sprint(i)), i, values{})
	}
	s.offerNow(t, "new")
	for i, want := range []bool{true, true, false, false} {
		if s.has(t, fmt.Sprint(i)) != want {
			t.Errorf("value %d is there: %v, want %v", i, !want, want)
		}
	}
}

func TestTheLimitHoldsAcrossStores(t *testing.T) {
	const limit = 20
	dir := t.TempDir()
	var wait sync.WaitGroup
	for writer := range 3 {
		s := open(t, dir, Options{Limit: limit * sizeOf(valueBytes), step: func(string) {
			if n, _ := diskUse(t, dir); n > limit*sizeOf(valueBytes) {
				t.Errorf("the folder has %d bytes, the limit is %d", n, limit*sizeOf(valueBytes))
			}
		}})
		wait.Go(func() {
			for i := range 30 {
				s.Offer(keyOf(fmt.Sprint(writer, i)), 0, values{})
			}
			if err := s.Flush(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	s := open(t, dir, Options{Limit: limit * sizeOf(valueBytes)})
	s.offerNow(t, "last")
	if n, temporary := diskUse(t, dir); n != s.Stats().Bytes || n == 0 || temporary != 0 || !s.has(t, "last") {
		t.Errorf("the folder has %d bytes and %d temporary files, the store counts %d", n, temporary, s.Stats().Bytes)
	}
}

func TestALowerLimitEvictsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Options{}).offerNow(t, "a", "b", "c", "d")
	s := open(t, dir, Options{Limit: 2 * sizeOf(valueBytes)})
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n, _ := diskUse(t, dir); n > 2*sizeOf(valueBytes) {
		t.Errorf("the folder has %d bytes", n)
	}
}

func TestForeignFilesStay(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Options{}).offerNow(t, "a")
	foreign := []string{filepath.Join(dir, "note.txt"), filepath.Join(dir, pagesDir, "note.txt"),
		filepath.Join(filepath.Dir((&Store{dir: dir}).path(keyOf("a"))), "note.kv")}
	for _, path := range foreign {
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var w warnings
	s := open(t, dir, Options{Limit: sizeOf(valueBytes), Warn: w.warn})
	s.offerNow(t, "b")
	for _, path := range foreign {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if w.count("other files") != 1 || s.has(t, "a") || !s.has(t, "b") {
		t.Errorf("lines %q", w.lines)
	}
}

// A value that is gone before its turn, or larger than the limit, is dropped.
func TestWhatCannotBeWrittenIsDropped(t *testing.T) {
	s := open(t, t.TempDir(), Options{Limit: sizeOf(valueBytes) - 1})
	s.Offer(Key{Part: -1}, 0, values{})
	s.offerNow(t, "a")
	if st := s.Stats(); st.Dropped != 2 || st.Written != 0 || st.Bytes != 0 {
		t.Errorf("got %+v", st)
	}
}

// slow is a source that waits.
type slow struct{ begun, goOn chan struct{} }

func (s slow) Value(Key) ([]byte, bool) { s.begun <- struct{}{}; <-s.goOn; return nil, false }

func TestAFullQueueDropsInsteadOfWaiting(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	source := slow{make(chan struct{}), make(chan struct{})}
	s.Offer(keyOf("slow"), 0, source)
	<-source.begun
	for range queued + 5 {
		s.Offer(keyOf("a"), 0, values{})
	}
	if st := s.Stats(); st.Dropped != 5 || st.QueuedOffers != queued {
		t.Errorf("got %+v", st)
	}
	if n := testing.AllocsPerRun(10, func() { s.Offer(keyOf("a"), 0, values{}) }); n != 0 {
		t.Errorf("an offer allocates %v times", n)
	}
	close(source.goOn)
	s.Forget(source)
}

// killPoints are where a process is killed.
var killPoints = []string{"counted", "half written", "written", "published", "evicted"}

func TestMain(m *testing.M) {
	if dir := os.Getenv("KVSTORE_TEST_DIR"); dir != "" {
		victim(dir, os.Getenv("KVSTORE_TEST_KILL"))
	}
	os.Exit(m.Run())
}

// victim writes until it kills itself on the way of a write.
func victim(dir, at string) {
	writes := 0
	s, err := Open(dir, Options{Limit: 10 * sizeOf(valueBytes), step: func(step string) {
		if step == "counted" {
			writes++
		}
		if step == at && (writes == 7 || at == "evicted") {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}})
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	for i := range 40 {
		s.Offer(keyOf(fmt.Sprint(i)), 0, values{})
	}
	_ = s.Flush(context.Background())
	os.Exit(4) // it was not killed
}

func TestAKilledWriterLeavesAWholeStore(t *testing.T) {
	for _, at := range killPoints {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "KVSTORE_TEST_DIR="+dir, "KVSTORE_TEST_KILL="+at)
			if out, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() == 3 || c.ProcessState.ExitCode() == 4 {
				t.Fatalf("the writer was not killed: %v %s", err, out)
			}
			const limit = 10
			s := open(t, dir, Options{Limit: limit * sizeOf(valueBytes)})
			s.offerNow(t, "after")
			found := 0
			for i := range 40 {
				if s.has(t, fmt.Sprint(i)) {
					found++
				}
			}
			if !s.has(t, "after") || found < 6 {
				t.Errorf("%d values of the killed writer are there", found)
			}
			if n, temporary := diskUse(t, dir); n > limit*sizeOf(valueBytes) || n != s.Stats().Bytes || temporary != 0 || s.Stats().Damaged != 0 {
				t.Errorf("%d bytes, %d temporary files, %+v", n, temporary, s.Stats())
			}
		})
	}
}

// TestAFolderThatIsRemovedIsMadeAgain: nothing was written any more to a folder that was removed while it was served.
func TestAFolderThatIsRemovedIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	var w warnings
	s := open(t, dir, Options{Warn: w.warn})
	for _, gone := range []string{dir, filepath.Join(dir, pagesDir)} {
		s.offerNow(t, "before")
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		if s.has(t, "before") {
			t.Error("a value is there without a folder")
		}
		s.offerNow(t, "after")
		if !s.has(t, "after") {
			t.Errorf("%s was removed: a later value is missing, warnings %q", gone, w.lines)
		}
		if other := open(t, dir, Options{Warn: w.warn}); !other.has(t, "after") {
			t.Errorf("%s was removed: another process does not read a later value", gone)
		}
	}
	if len(w.lines) > 0 {
		t.Errorf("warnings %q", w.lines)
	}
}
