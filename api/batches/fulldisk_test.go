package batches

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/testenv"
)

// TestAFullDiskEndsABatch: the disk is full before the store's limit. The batch fails and says why, its file of
// results has whole lines only, and a server that starts later finds both.
func TestAFullDiskEndsABatch(t *testing.T) {
	disk := testenv.SmallDisk(t, 512<<10)
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire.WriteJSON(w, http.StatusOK, strings.Repeat("x", 9<<10))
	})
	s := open(t, filepath.Join(disk, "store"))
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": large}, MaxLine: 1 << 20, Parallel: 2})
	var in strings.Builder
	for i := range 100 {
		in.WriteString(completion(i, "{}"))
	}
	k := newBatch(t, s, in.String())
	check := func(s *Server, when string, b batch) {
		t.Helper()
		if b.Status != failed || b.Errors == nil || !strings.Contains(b.Errors.Data[0].Message, "free space") {
			t.Errorf("%s: %+v, want a batch that failed and says what helps", when, b)
		}
		if b.Output == nil {
			t.Errorf("%s: no results", when)
			return
		}
		text, err := os.ReadFile(s.files.data(*b.Output))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		if last := lines[len(lines)-1]; len(last) > 0 || len(lines) < 2 {
			t.Errorf("%s: %d results, and %d bytes of one more", when, len(lines)-1, len(last))
		}
		for _, line := range lines[:len(lines)-1] {
			if !json.Valid(line) {
				t.Errorf("%s: result %.80q", when, line)
			}
		}
	}
	check(s, "at the end", s.wait(t, k))
	s.Stop()
	again := open(t, filepath.Join(disk, "store"))
	again.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": large}, MaxLine: 1 << 20, Parallel: 2})
	again.mu.Lock()
	next := again.batches[k.Batch.ID]
	again.mu.Unlock()
	if next == nil {
		t.Fatal("the next start does not know the batch")
	}
	check(again, "after the next start", again.wait(t, next))
}

// TestAnUploadToAFullDiskShowsNoPath: the answer had the path of a temporary file of the server, and not what helps.
func TestAnUploadToAFullDiskShowsNoPath(t *testing.T) {
	disk := testenv.SmallDisk(t, 512<<10)
	s := open(t, filepath.Join(disk, "store"))
	fill(t, filepath.Join(disk, "other"))
	w := sendFile(t, s, bytes.Repeat([]byte("x"), 600<<10))
	if got := w.Body.String(); w.Code != http.StatusInternalServerError || strings.Contains(got, disk) || !strings.Contains(got, "free space") {
		t.Errorf("got %d %s, want 500 without a path, and what helps", w.Code, got)
	}
}

// fill writes a file until its disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// kept is the state of a batch on disk.
func (s *Server) kept(t *testing.T, k *keptBatch) batch {
	t.Helper()
	text, err := os.ReadFile(s.path(k.Batch.ID))
	if err != nil {
		t.Fatal(err)
	}
	var on keptBatch
	if err := json.Unmarshal(text, &on); err != nil {
		t.Fatal(err)
	}
	return on.Batch
}

// TestAFullDiskLeftABatchInProgress: a disk that others fill while a batch runs left the batch "in_progress" in its file,
// and its results without a description.
func TestAFullDiskLeftABatchInProgress(t *testing.T) {
	disk := testenv.SmallDisk(t, 1<<20)
	full := false
	filling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire.WriteJSON(w, http.StatusOK, strings.Repeat("x", 5<<10))
		if !full {
			full = true
			fill(t, filepath.Join(disk, "other"))
		}
	})
	s := open(t, filepath.Join(disk, "store"))
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": filling}, MaxLine: 1 << 20, Parallel: 1})
	b := s.wait(t, newBatch(t, s, completion(1, "{}")+completion(2, "{}")+completion(3, "{}")))
	if b.Status != failed {
		t.Fatalf("%+v, want a batch that failed", b)
	}
	s.mu.Lock()
	k := s.batches[b.ID]
	s.mu.Unlock()
	if on := s.kept(t, k); on.Status != failed || on.Errors == nil || !strings.Contains(on.Errors.Data[0].Message, "free space") {
		t.Errorf("on disk: %+v, want a batch that failed and says what helps", on)
	}
	if b.Output != nil {
		if _, err := s.files.find("", *b.Output); err != nil {
			t.Errorf("the results have no description: %v", err)
		}
	}
}

// TestAStateThatWasNotKeptIsWrittenLater: the disk has room again while the server runs, or when it stops.
func TestAStateThatWasNotKeptIsWrittenLater(t *testing.T) {
	for _, when := range []string{"while the server runs", "when it stops"} {
		disk := testenv.SmallDisk(t, 1<<20)
		other := filepath.Join(disk, "other")
		s := open(t, filepath.Join(disk, "store"))
		if when == "while the server runs" {
			s.again = time.Millisecond
		}
		var k *keptBatch
		filling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wire.WriteJSON(w, http.StatusOK, "x")
			fill(t, other)
			s.files.reserve.mu.Lock()
			s.files.reserve.size = 0 // used up
			s.files.reserve.mu.Unlock()
		})
		s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": filling}, MaxLine: 1 << 20, Parallel: 1})
		k = newBatch(t, s, completion(1, "{}"))
		if b := s.wait(t, k); !ended(b.Status) {
			t.Fatalf("%+v", b)
		}
		if on := s.kept(t, k); ended(on.Status) {
			t.Fatalf("%s: the full disk has the state %s", when, on.Status)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		if when == "when it stops" {
			s.Stop()
		}
		for until := time.Now().Add(time.Minute); !ended(s.kept(t, k).Status); time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s: %+v on disk", when, s.kept(t, k))
			}
		}
	}
}
