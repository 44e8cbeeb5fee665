package batches

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sendFile uploads a file to s.
func sendFile(t *testing.T, s *Server, contents []byte) *httptest.ResponseRecorder {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err := form.WriteField("purpose", purposeBatch)
	if err == nil {
		part, e := form.CreateFormFile("file", "in.jsonl")
		if err = e; err == nil {
			_, err = part.Write(contents)
		}
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/files", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	w := httptest.NewRecorder()
	s.Upload(w, r)
	return w
}

// TestAStoreThatIsRemovedIsMadeAgain: uploads were a 500 after the folder of the store was removed, and so was a file
// whose contents were gone, until the server was started again.
func TestAStoreThatIsRemovedIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 20, Parallel: 1})
	if w := sendFile(t, s, []byte(completion(1, "{}"))); w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	old := s.files.list("", "")[0]
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if w := sendFile(t, s, []byte(completion(1, "{}"))); w.Code != http.StatusOK {
		t.Errorf("an upload to a store that was removed: got %d %s, want 200", w.Code, w.Body)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/files/x/content", nil)
	r.SetPathValue("id", old.ID)
	w := httptest.NewRecorder()
	s.Content(w, r)
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "No such File object") {
		t.Errorf("a file whose contents are gone: got %d %s, want 404", w.Code, w.Body)
	}
	if left := s.files.list("", ""); len(left) != 1 {
		t.Errorf("%d files are listed, want the one that is there", len(left))
	}
	if b := s.wait(t, newBatch(t, s, completion(1, "{}"))); b.Status != completed || b.Output == nil {
		t.Errorf("a batch in a store that was removed: %+v", b)
	}
}

// TestABatchWhoseResultsAreRemovedFails: it ended as completed, with a file of results that could not be read.
func TestABatchWhoseResultsAreRemovedFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	removing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		echo(w, r)
	})
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": removing}, MaxLine: 1 << 20, Parallel: 1})
	b := s.wait(t, newBatch(t, s, completion(1, "{}")))
	if b.Status != failed || b.Output != nil || b.Errors == nil {
		t.Errorf("%+v, want a batch that failed", b)
	}
}

// TestAStoreThatIsMadeAgainIsLockedAgain: its lock file was gone with the folder, so that a second server could open
// the same files and batches.
func TestAStoreThatIsMadeAgainIsLockedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir)
	remove := func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	if w := sendFile(t, s, []byte("{}\n")); w.Code != http.StatusOK {
		t.Fatalf("an upload to a store that was removed: got %d %s", w.Code, w.Body)
	}
	other := open(t, dir)
	if err := other.refresh(); !errors.Is(err, errOther) {
		t.Errorf("a second server opens a store that was made again: %v", err)
	}
	other.Stop()
	remove()
	second := open(t, dir)
	if err := second.refresh(); err != nil {
		t.Fatalf("the first server keeps another from a store that was removed: %v", err)
	}
	if w := sendFile(t, s, []byte("{}\n")); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Another server") {
		t.Errorf("the first server writes into the store of the second: %d %s", w.Code, w.Body)
	}
	second.Stop()
	if w := sendFile(t, s, []byte("{}\n")); w.Code != http.StatusOK {
		t.Errorf("after the second server stopped: %d %s", w.Code, w.Body)
	}
}

// TestFilesOfAnotherServerAreKnownWhenItHasStopped: a server that took the lock of its store back did not know what
// another one had written meanwhile, and showed what was removed.
func TestFilesOfAnotherServerAreKnownWhenItHasStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	backend := Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 20, Parallel: 1}
	first := open(t, dir)
	first.Begin(backend)
	if w := sendFile(t, first, []byte(completion(1, "{}"))); w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	first.wait(t, newBatch(t, first, completion(1, "{}")))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir) // its batch waits
	if w := sendFile(t, second, []byte(completion(1, "{}"))); w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	left := newBatch(t, second, completion(1, "{}"))
	if w := get(t, first.Files); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Another server") {
		t.Errorf("a list while another server has the store: %d %s", w.Code, w.Body)
	}
	want := second.files.list("", "")
	second.Stop()
	var got page[file]
	if w := get(t, first.Files); json.Unmarshal(w.Body.Bytes(), &got) != nil || len(got.Data) != len(want) {
		t.Errorf("a list after it has stopped: %s, want %v", w.Body, want)
	}
	first.running.Wait()
	var batches page[batch]
	if w := get(t, first.List); json.Unmarshal(w.Body.Bytes(), &batches) != nil || len(batches.Data) != 1 ||
		batches.Data[0].ID != left.Batch.ID || batches.Data[0].Status != completed {
		t.Errorf("batches: %s, want %s alone, completed", w.Body, left.Batch.ID)
	}
	first.Stop()
	if again := open(t, dir); used(again) != used(first) {
		t.Errorf("%d bytes of the store are used, want %d as after a start", used(first), used(again))
	}
}

// used is how much files and batches count against the limit of the store of s.
func used(s *Server) int64 {
	free := int64(0)
	for step := s.files.store.Limit(); step > 0; step /= 2 {
		for s.files.store.Reserve(free+step) == nil {
			s.files.store.Found(-free - step)
			free += step
		}
	}
	return s.files.store.Limit() - free
}

// get returns the answer of a list.
func get(t *testing.T, list http.HandlerFunc) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	list(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	return w
}

// TestAServerTakesOverWhatAnotherOneLeaves: a server that was started before another one had stopped, as in a rolling restart, had
// no files and batches until its own restart, and did not continue the other's.
func TestAServerTakesOverWhatAnotherOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		backend := func(h http.HandlerFunc) Backend {
			return Backend{Endpoints: map[string]http.Handler{"/v1/completions": h}, MaxLine: 1 << 20, Parallel: 1}
		}
		first := open(t, dir)
		first.Begin(backend(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		left := newBatch(t, first, completion(1, "{}")+completion(2, "{}"))
		second := open(t, dir)
		second.Begin(backend(echo))
		if w := get(t, second.List); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Another server") {
			t.Errorf("while the other one runs: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Minute)
		first.Stop()
		time.Sleep(2 * lookAfter)
		if b := second.kept(t, left); b.Status != completed || b.Counts.Completed != 2 {
			t.Errorf("the batch of the other server: %+v", b)
		}
		if w := get(t, second.List); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), left.Batch.ID) {
			t.Errorf("after the other one has stopped: %d %s", w.Code, w.Body)
		}
		third := open(t, dir)
		second.Stop()
		if w := get(t, third.List); w.Code != http.StatusOK {
			t.Errorf("the first request after a takeover: %d %s", w.Code, w.Body)
		}
		third.Stop()
	})
}
