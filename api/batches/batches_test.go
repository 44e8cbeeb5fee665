package batches

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with its own body.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
})

func open(t *testing.T, dir string) *Server {
	t.Helper()
	kept, err := store.Open(dir, 1<<26)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// newBatch makes a batch of lines without HTTP.
func newBatch(t *testing.T, s *Server, in string) *keptBatch {
	t.Helper()
	f := &keptFile{Order: newOrder(s.now()), File: file{ID: newID("file-")}}
	n, err := s.files.upload(f.File.ID, strings.NewReader(in))
	f.File.Bytes = n
	if err == nil {
		err = s.files.add(f)
	}
	k := &keptBatch{Order: newOrder(s.now()), OutputID: newID("file-"), ErrorID: newID("file-"), Batch: batch{ID: newID("batch_"), Object: "batch", Status: validating,
		Endpoint: "/v1/completions", Input: f.File.ID, CreatedAt: s.now().Unix(), ExpiresAt: s.now().Add(windowTime).Unix()}}
	if err == nil {
		err = s.add(k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (s *Server) wait(t *testing.T, k *keptBatch) batch {
	t.Helper()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.view()
}

func completion(i int, body string) string {
	return fmt.Sprintf(`{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":%s}`+"\n", i, body)
}

// TestAnExpiredBatchSaysSoForEachLine: lines without an answer are in the error file.
func TestAnExpiredBatchSaysSoForEachLine(t *testing.T) {
	s := open(t, t.TempDir())
	var expire context.CancelCauseFunc
	s.until = func(ctx context.Context, _ time.Time, cause error) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		expire = cancel
		return ctx, func() { cancel(nil) }
	}
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); bytes.Contains(b, []byte("slow")) {
			expire(errExpired)
			<-r.Context().Done()
		}
		wire.WriteJSON(w, http.StatusOK, 1)
	})
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": slow}, MaxLine: 1 << 20, Parallel: 1})
	b := s.wait(t, newBatch(t, s, completion(1, "{}")+completion(2, `{"slow":1}`)+completion(3, "{}")))
	if b.Status != expired || b.Counts != (Counts{3, 1, 2}) || b.ErrorFile == nil {
		t.Fatalf("%+v", b)
	}
	text, err := os.ReadFile(s.files.data(*b.ErrorFile))
	if err != nil || !bytes.Contains(text, []byte(`"custom_id":"c3"`)) || !bytes.Contains(text, []byte("batch_expired")) {
		t.Errorf("%s %v", text, err)
	}
}

// TestALineThatTheServerHasNoRoomForIsTriedAgain: a 503 of the server is not the result of a line.
func TestALineThatTheServerHasNoRoomForIsTriedAgain(t *testing.T) {
	s := open(t, t.TempDir())
	asked := 0
	busy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		wire.WriteJSON(w, http.StatusOK, asked)
	})
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": busy}, MaxLine: 1 << 20, Parallel: 1})
	if b := s.wait(t, newBatch(t, s, completion(1, "{}"))); b.Counts.Completed != 1 || asked != 3 {
		t.Errorf("asked %d times: %+v", asked, b)
	}
}

// TestABatchThatIsTriedAgainHoldsUpNoOther: its lines kept all places, so that no other batch went on, for up to a day.
func TestABatchThatIsTriedAgainHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		var full atomic.Bool
		full.Store(true)
		var mu sync.Mutex
		asked := map[string]bool{}
		some := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if b, _ := io.ReadAll(r.Body); bytes.Contains(b, []byte("full")) {
				mu.Lock()
				asked[string(b)] = true
				mu.Unlock()
				if full.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}
			wire.WriteJSON(w, http.StatusOK, 1)
		})
		s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": some}, MaxLine: 1 << 20, Parallel: 1})
		var lines strings.Builder
		for i := range 20 {
			lines.WriteString(completion(i, fmt.Sprintf(`{"full":%d}`, i)))
		}
		first := newBatch(t, s, lines.String())
		time.Sleep(time.Minute)
		second := newBatch(t, s, completion(1, "{}")+completion(2, "{}"))
		time.Sleep(time.Minute)
		if b := s.kept(t, second); b.Status != completed || b.Counts.Completed != 2 {
			t.Errorf("the other batch: %+v", b)
		}
		mu.Lock()
		if len(asked) > 3 {
			t.Errorf("%d lines of the batch that has to wait were begun", len(asked))
		}
		mu.Unlock()
		full.Store(false)
		if b := s.wait(t, first); b.Status != completed || b.Counts.Completed != 20 {
			t.Errorf("%+v", b)
		}
		s.Stop()
	})
}

// TestALineWhoseModelCannotBeLoadedFails: it was tried again until the batch expired, and then had no reason.
func TestALineWhoseModelCannotBeLoadedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())
		broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"no room","code":"model_unavailable"}}`)
		})
		s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": broken}, MaxLine: 1 << 20, Parallel: 2})
		began := time.Now()
		b := s.wait(t, newBatch(t, s, completion(1, "{}")+completion(2, "{}")))
		if took := time.Since(began); b.Status != completed || b.Counts != (Counts{2, 0, 2}) || b.ErrorFile == nil || took < longestPause || took > time.Minute {
			t.Fatalf("after %v: %+v", took, b)
		}
		text, err := os.ReadFile(s.files.data(*b.ErrorFile))
		if err != nil || bytes.Count(text, []byte(`"status_code":503`)) != 2 || !bytes.Contains(text, []byte("no room")) {
			t.Errorf("%s %v", text, err)
		}
		s.Stop()
	})
}

// TestAPanicIsTheErrorOfItsLine: and the others are answered.
func TestAPanicIsTheErrorOfItsLine(t *testing.T) {
	s := open(t, t.TempDir())
	bad := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); bytes.Contains(b, []byte("bad")) {
			panic("bad")
		}
		wire.WriteJSON(w, http.StatusOK, 1)
	})
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": bad}, MaxLine: 1 << 20, Parallel: 4})
	b := s.wait(t, newBatch(t, s, completion(1, "{}")+completion(2, `{"bad":1}`)+completion(3, "{}")))
	if b.Status != completed || b.Counts != (Counts{3, 2, 1}) {
		t.Errorf("%+v", b)
	}
}

// TestAFullStoreEndsABatch: its results do not exceed the limit of the store.
func TestAFullStoreEndsABatch(t *testing.T) {
	dir := t.TempDir()
	kept, err := store.Open(dir, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	large := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire.WriteJSON(w, http.StatusOK, strings.Repeat("x", 10<<10))
	})
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": large}, MaxLine: 1 << 20, Parallel: 2})
	var in strings.Builder
	for i := range 20 {
		in.WriteString(completion(i, "{}"))
	}
	b := s.wait(t, newBatch(t, s, in.String()))
	if b.Status != failed || b.Errors == nil || !strings.Contains(b.Errors.Data[0].Message, "--store-limit") {
		t.Errorf("%+v", b)
	}
	size := int64(0)
	for _, path := range []string{"files", "batches"} {
		list, err := os.ReadDir(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
	}
	if size > 64<<10 {
		t.Errorf("%d bytes in a store of %d", size, 64<<10)
	}
}

// TestLongLinesAreFoundInBoundedMemory: lines longer than the buffer keep their places.
func TestLongLinesAreFoundInBoundedMemory(t *testing.T) {
	text := strings.Repeat("a", 3*lineBuffer) + "\n \n" + strings.Repeat("b", lineBuffer) + "\r\nc"
	all := newLines(strings.NewReader(text))
	var got []string
	for {
		l, err := all.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		part := text[l.at : l.at+l.size]
		got = append(got, fmt.Sprintf("%d%s%d", l.number, part[:1], len(part)))
	}
	if want := fmt.Sprintf("[1a%d 3b%d 4c1]", 3*lineBuffer, lineBuffer+1); fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAnotherServerHasTheFolder: one process runs the batches of a folder.
func TestAnotherServerHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	other := open(t, dir)
	if err := other.refresh(); !errors.Is(err, errOther) {
		t.Errorf("two servers have one folder: %v", err)
	}
	other.Stop()
	s.Stop()
	if err := open(t, dir).refresh(); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// TestAKilledProcessBetweenResultsAndTheirBatch: the files are described and the batch is not ended.
func TestAKilledProcessBetweenResultsAndTheirBatch(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	b := Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 20, Parallel: 2}
	s.Begin(b)
	k := newBatch(t, s, completion(1, `{"x":"<1>"}`)+completion(2, "{}"))
	s.wait(t, k)
	s.change(k, func(b *batch) { b.Status = finalizing })
	s.Stop()
	s = open(t, dir)
	s.Begin(b)
	got := s.wait(t, s.batches[k.Batch.ID])
	if got.Status != completed || got.Counts != (Counts{2, 2, 0}) {
		t.Errorf("%+v", got)
	}
	f, err := os.Open(s.files.data(*got.Output))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for in := bufio.NewScanner(f); in.Scan(); n++ {
	}
	if n != 2 {
		t.Errorf("%d results", n)
	}
}

// BenchmarkLine measures the cost of a line in addition to its endpoint.
func BenchmarkLine(b *testing.B) {
	path := filepath.Join(b.TempDir(), "in")
	if err := os.WriteFile(path, []byte(strings.Repeat(completion(1, `{"prompt":"x"}`), b.N)), 0o600); err != nil {
		b.Fatal(err)
	}
	_, err := Run(context.Background(), Job{In: path, Out: path + ".out", Errors: path + ".err",
		Backend: Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 20, Parallel: 8}})
	if err != nil {
		b.Fatal(err)
	}
}

// TestALineThatIsNoObjectNamesNoGoType: its error had the type of a Go struct.
func TestALineThatIsNoObjectNamesNoGoType(t *testing.T) {
	for text, want := range map[string]string{"[1]": "array", `"x"`: "string", "5": "number", "true": "bool"} {
		_, err := parseLine([]byte(text), func(string) error { return nil })
		if err == nil || !strings.HasSuffix(err.Error(), "is not a JSON object: got JSON of type "+want+".") {
			t.Errorf("%s: got %v, want its type in JSON", text, err)
		}
	}
}

// TestACommandRejectsACustomIDGivenTwice: both lines were answered, and nothing told their results apart.
func TestACommandRejectsACustomIDGivenTwice(t *testing.T) {
	stream := `{"stream":true}` // a wrong line has an id, too
	for in, want := range map[string]string{
		completion(1, "{}") + "\n" + completion(2, "{}") + completion(3, "{}") + completion(2, "{}") + completion(1, "{}"): "in.jsonl:5: custom_id: got the same as on line 3, want a different one on each line",
		completion(1, stream) + completion(1, "{}"):  "in.jsonl:2: custom_id: got the same as on line 1,",
		"not JSON\nnot JSON\n" + completion(1, "{}"): "",
	} {
		dir := t.TempDir()
		j := Job{Backend: Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}, MaxLine: 1 << 10, Parallel: 1},
			In: filepath.Join(dir, "in.jsonl"), Out: filepath.Join(dir, "out.jsonl"), Errors: filepath.Join(dir, "errors.jsonl")}
		if err := os.WriteFile(j.In, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Run(t.Context(), j)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\ngot %v, want %q", in, err, want)
		}
		_, missing := os.Stat(j.Out)
		if want != "" && !os.IsNotExist(missing) {
			t.Errorf("%s: the file of results was written", want)
		}
	}
}

// TestAByteOrderMarkBeginsAFile: the first line of a file that has one was no JSON object.
func TestAByteOrderMarkBeginsAFile(t *testing.T) {
	allow := (&Backend{Endpoints: map[string]http.Handler{"/v1/completions": echo}}).allow("")
	if c, err := parseLine([]byte("\ufeff"+completion(1, `{"x":"\ufeff"}`)), allow); err != nil || string(c.Body) != `{"x":"\ufeff"}` {
		t.Errorf("got %q, %v", c.Body, err)
	}
}

// TestBatchesOutlastAClockThatIsSet: a batch that runs does not expire when the clock is set forward. One whose end is far
// ahead because the clock was set back expired that much later, and lists had it as the oldest.
func TestBatchesOutlastAClockThatIsSet(t *testing.T) {
	s := open(t, t.TempDir())
	var ahead atomic.Int64 // of the clock
	s.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var started sync.WaitGroup
	started.Add(2)
	s.until = func(ctx context.Context, end time.Time, cause error) (context.Context, context.CancelFunc) {
		defer started.Done()
		if left := end.Sub(s.now()); left > windowTime {
			t.Errorf("a batch has %v, want at most a window", left)
		}
		return context.WithDeadlineCause(ctx, end, cause)
	}
	forward := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started.Wait()
		ahead.Store(int64(100 * time.Hour))
		echo(w, r)
	})
	first := newBatch(t, s, completion(1, "{}"))
	ahead.Store(int64(-10 * time.Hour))
	second := newBatch(t, s, completion(1, "{}"))
	s.Begin(Backend{Endpoints: map[string]http.Handler{"/v1/completions": forward}, MaxLine: 1 << 20, Parallel: 1})
	for _, k := range []*keptBatch{first, second} {
		if b := s.wait(t, k); b.Status != completed || b.Counts.Completed != 1 {
			t.Errorf("%+v", b)
		}
	}
	if list := s.of(""); list[0].ID != second.Batch.ID {
		t.Errorf("the newest batch is %s, want %s", list[0].ID, second.Batch.ID)
	}
	ahead.Store(0)
	inputs := map[string]int{}
	for i, f := range s.files.list("", "") {
		inputs[f.ID] = i
	}
	if inputs[first.Batch.Input] > inputs[second.Batch.Input] {
		t.Errorf("files %v, want %s before %s", inputs, first.Batch.Input, second.Batch.Input)
	}
}
