package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hangUp sends the beginning of a response and closes the connection.
func hangUp(w http.ResponseWriter, header string, body []byte) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	fmt.Fprintf(rw, "%s\r\n\r\n", header)
	_, _ = rw.Write(body)
	_ = rw.Flush()
	conn.Close()
}

// rangeOf reads the Range of a request.
func rangeOf(r *http.Request, size int) (begin, end int) {
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &begin, &end); n == 2 {
		return begin, end + 1
	}
	return 0, size
}

// sendPart answers a request for a part with what body has of it.
func sendPart(w http.ResponseWriter, r *http.Request, body []byte, tag string) {
	begin, end := rangeOf(r, len(body))
	w.Header().Set("ETag", tag)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, end-1, len(body)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(body[begin:end])
}

func TestCutConnectionsGoOnWhereTheyWereCut(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	var sent atomic.Int64
	h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
		if r.Method != "GET" {
			return false
		}
		body := h.files[name]
		begin, end := rangeOf(r, len(body))
		n := min(end-begin, 400)
		sent.Add(int64(n))
		hangUp(w, fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nETag: \"x\"\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d",
			begin, end-1, len(body), end-begin), body[begin:begin+n])
		return true
	}
	s := pullAll(t, c)
	h.wantFiles(s, needed...)
	if s.Fetched != s.Bytes {
		t.Errorf("fetched %d bytes of %d", s.Fetched, s.Bytes)
	}
}

func TestAConnectionThatBringsNothing(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	c.system.idle = 50 * time.Millisecond
	var stalled atomic.Bool
	h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
		if r.Method != "GET" || !stalled.CompareAndSwap(false, true) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(h.files[name])))
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	h.wantFiles(pullAll(t, c), needed...)
}

func TestThrottling(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	var waits []time.Duration
	c.config.Connections = 1
	c.slots = make(chan struct{}, 1)
	c.system.jitter = func() float64 { return 0.5 }
	sleeping := make(chan struct{}, 1)
	c.system.sleep = func(_ context.Context, d time.Duration) error {
		sleeping <- struct{}{}
		waits = append(waits, d)
		<-sleeping
		return nil
	}
	answers := []struct {
		status int
		after  string
	}{{429, "7"}, {503, ""}, {500, ""}, {429, time.Now().Add(time.Hour / 60).UTC().Format(http.TimeFormat)}, {502, "soon"}}
	h.list = func(w http.ResponseWriter, _ *http.Request) bool {
		if len(answers) == 0 {
			return false
		}
		w.Header().Set("Retry-After", answers[0].after)
		w.WriteHeader(answers[0].status)
		answers = answers[1:]
		return true
	}
	pullAll(t, c)
	want := []time.Duration{7 * time.Second, time.Second, 2 * time.Second, time.Minute, 6 * time.Second}
	if len(waits) != len(want) {
		t.Fatalf("waited %v", waits)
	}
	for i, w := range waits {
		if w < want[i]/2 || w > want[i]+time.Second {
			t.Errorf("wait %d is %v, want about %v", i, w, want[i])
		}
	}
}

func TestThrottlingIsNotWaitedForWithoutEnd(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	h.list = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Throttled, "429", "tried 6 times")
	if n := len(h.requests("GET")); n != 6 {
		t.Errorf("asked %d times", n)
	}
	h.list = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "86400")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	_, err = c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Throttled, "come back in 24h0m0s")
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		status  int
		code    string
		token   string
		kind    Kind
		message string
	}{
		{401, "GatedRepo", "", Gated, "ask for access at http://127.0.0.1"},
		{403, "GatedRepo", secret, Gated, "then set HF_TOKEN"},
		{401, "", "", Refused, "check the name, or set HF_TOKEN"},
		{401, "RepoNotFound", secret, Refused, "check the name"},
		{401, "", secret, Refused, "does not accept the token"},
		{403, "", secret, Refused, "may not read this model"},
		{404, "RepoNotFound", "", NotFound, "there is no such model"},
		{404, "RevisionNotFound", "", NotFound, "no such revision"},
		{418, "", "", Failed, "418"},
	} {
		h := newHub(t, tiny())
		h.list = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-Error-Code", test.code)
			w.Header().Set("X-Error-Message", "sorry\u009b31m")
			w.WriteHeader(test.status)
			return true
		}
		c := h.client("")
		c.config.Token = test.token
		_, err := c.Pull(t.Context(), repo, PullOptions{})
		wantKind(t, err, test.kind, test.message, "acme/tiny")
		if strings.Contains(err.Error(), "\u009b") {
			t.Errorf("%q reaches the terminal", err)
		}
		if n := len(h.requests("GET")); n != 1 {
			t.Errorf("%d: asked %d times", test.status, n)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	h.server.Close()
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Unreachable, "asking 127.0.0.1", "tried 6 times")
}

func TestRedirects(t *testing.T) {
	for place, kind := range map[string]Kind{
		"ftp://example.invalid/x": Corrupt,
		"file:///etc/passwd":      Corrupt,
		"":                        Corrupt, // to itself, again and again
	} {
		h := newHub(t, tiny())
		h.resolve = func(w http.ResponseWriter, r *http.Request, name string) bool {
			if isLFS(name) && r.Method == "GET" {
				w.Header().Set("Location", place)
				w.WriteHeader(http.StatusFound)
				return true
			}
			return false
		}
		_, err := h.client("").Pull(t.Context(), repo, PullOptions{})
		wantKind(t, err, kind, "sends on")
	}
}

func TestARenamedModelIsFollowed(t *testing.T) {
	h := newHub(t, tiny())
	h.list = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("again") != "" {
			return false
		}
		if r.Header.Get("Authorization") != "Bearer "+secret {
			t.Error("no token")
		}
		http.Redirect(w, r, r.URL.Path+"?again=1", http.StatusTemporaryRedirect)
		return true
	}
	h.wantFiles(pullAll(t, h.client("")), needed...)
}

// TestAServerThatIgnoresRanges sends whole files; they are taken in one piece.
func TestAServerThatIgnoresRanges(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(h.files[name])))
		_, _ = w.Write(h.files[name])
		return true
	}
	h.wantFiles(pullAll(t, c), needed...)
	if got := h.requests("GET"); !slices.Contains(got, "GET model-1.safetensors") {
		t.Errorf("asked for %v", got)
	}
}

func TestCancel(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user had enough")
	h.cut = func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if strings.Contains(r.Header.Get("Range"), "3000") {
			cancel(why)
			<-r.Context().Done()
		}
		return false
	}
	if _, err := c.Pull(ctx, repo, PullOptions{}); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	h.behave(nil, nil)
	h.wantFiles(pullAll(t, c), needed...)
}

// weights is a model of one file, whose download the tests of resuming look at.
func weights() map[string][]byte {
	return map[string][]byte{"config.json": []byte("{}"), "model.safetensors": shard("a", 9900)}
}

// interrupt pulls until the parts from 5000 on are asked for, which fail for good.
func interrupt(t *testing.T, h *fakeHub, c *Client) {
	t.Helper()
	c.config.Connections = 1
	h.cut = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if begin, _ := rangeOf(r, 0); begin >= 5000 {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Refused, "model.safetensors")
	h.behave(nil, nil)
	h.requests("GET")
}

func TestResume(t *testing.T) {
	h := newHub(t, weights())
	cache := t.TempDir()
	interrupt(t, h, h.client(cache))
	var condition atomic.Value
	h.behave(nil, func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		condition.Store(r.Header.Get("If-Range"))
		return false
	})
	s := pullAll(t, h.client(cache))
	h.wantFiles(s, "config.json", "model.safetensors")
	want := int64(len(h.files["model.safetensors"]) - 5000)
	if s.Fetched != want || condition.Load() != `"cdn-1"` {
		t.Errorf("fetched %d bytes on condition of %v, want %d", s.Fetched, condition.Load(), want)
	}
}

func TestResumeOfAFileThatChanged(t *testing.T) {
	h := newHub(t, weights())
	cache := t.TempDir()
	interrupt(t, h, h.client(cache))
	h.behave(nil, func(w http.ResponseWriter, r *http.Request, name string) bool {
		w.Header().Set("ETag", `"cdn-2"`) // If-Range does not hold: all of it comes
		if r.Header.Get("If-Range") != "" && r.Header.Get("If-Range") != `"cdn-2"` {
			_, _ = w.Write(h.files[name])
			return true
		}
		sendPart(w, r, h.files[name], `"cdn-2"`)
		return true
	})
	h.wantFiles(pullAll(t, h.client(cache)), "config.json", "model.safetensors")
}

// TestResumeOfBrokenBytes has a download whose first part was damaged on disk, and states
// that fit no download.
func TestResumeOfBrokenBytes(t *testing.T) {
	damage := map[string]func(download, state string) error{
		"bytes":    func(download, _ string) error { return overwrite(download, 17, "damaged") },
		"cut":      func(download, _ string) error { return os.Truncate(download, 100) },
		"gone":     func(download, _ string) error { return os.Remove(download) },
		"no state": func(_, state string) error { return os.Remove(state) },
		"other": func(_, state string) error {
			return os.WriteFile(state, []byte(`{"size":7,"part":1000,"done":[7]}`), 0o666)
		},
		"no json": func(_, state string) error { return os.WriteFile(state, []byte(`{"size":`), 0o666) },
		"too many": func(_, state string) error {
			return os.WriteFile(state, []byte(`{"size":9968,"part":9968,"done":[1,1]}`), 0o666)
		},
		"no part": func(_, state string) error { return os.WriteFile(state, []byte(`{"size":9968}`), 0o666) },
		"all there": func(_, state string) error {
			return os.WriteFile(state, []byte(`{"size":9968,"part":9968,"done":[5000]}`), 0o666)
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, weights())
			cache := t.TempDir()
			interrupt(t, h, h.client(cache))
			blob := filepath.Join(cache, "models--acme--tiny", "blobs", hashOf("model.safetensors", h.files["model.safetensors"]))
			if err := do(blob+".heft.incomplete", blob+".heft.state"); err != nil {
				t.Fatal(err)
			}
			h.wantFiles(pullAll(t, h.client(cache)), "config.json", "model.safetensors")
		})
	}
}

func overwrite(path string, at int64, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), at)
	return errors.Join(err, f.Close())
}

func TestAFullDiskCanBeResumed(t *testing.T) {
	h := newHub(t, weights())
	cache := t.TempDir()
	c := h.client(cache)
	c.config.Connections = 1
	c.system.writeAt = func(f *os.File, p []byte, offset int64) (int, error) {
		if offset >= 4000 {
			return 0, &os.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
		}
		return f.WriteAt(p, offset)
	}
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Disk, "model.safetensors", "free some space and pull again")
	s := pullAll(t, h.client(cache))
	h.wantFiles(s, "config.json", "model.safetensors")
	if want := int64(len(h.files["model.safetensors"]) - 4000); s.Fetched != want {
		t.Errorf("fetched %d bytes, want %d", s.Fetched, want)
	}
}

// TestABlobOfTheWrongSizeIsFetchedAgain finds what another program left behind.
func TestABlobOfTheWrongSizeIsFetchedAgain(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	s := pullAll(t, c)
	blob, _ := filepath.EvalSymlinks(filepath.Join(s.Dir, "model-1.safetensors"))
	if err := os.Truncate(blob, 7); err != nil {
		t.Fatal(err)
	}
	h.wantFiles(pullAll(t, c), needed...)
}

// TestALoginPageSpoilsNothing has a network that answers for the server in the middle of
// a download.
func TestALoginPageSpoilsNothing(t *testing.T) {
	h := newHub(t, weights())
	cache := t.TempDir()
	interrupt(t, h, h.client(cache))
	h.behave(nil, func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		_, _ = w.Write([]byte("<html>log in</html>"))
		return true
	})
	_, err := h.client(cache).Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Corrupt, "model.safetensors", "the server sends 19")
	h.behave(nil, nil)
	s := pullAll(t, h.client(cache))
	h.wantFiles(s, "config.json", "model.safetensors")
	if want := int64(len(h.files["model.safetensors"]) - 5000); s.Fetched != want {
		t.Errorf("fetched %d bytes, want %d", s.Fetched, want)
	}
}
