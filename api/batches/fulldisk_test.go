package batches

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
