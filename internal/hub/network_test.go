package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
		{403, "", secret, Refused, "the token may not read this model"},
		{403, "", "", Refused, "without a token: set HF_TOKEN"},
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

// TestAnUnreachableHubFailsSoon: a hub that cannot be reached fails soon. Otherwise a misspelt path, models/mine, is
// requested from a hub for a quarter of a minute.
func TestAnUnreachableHubFailsSoon(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	h.server.Close()
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Unreachable, "asking 127.0.0.1", "tried 2 times")
	c.reached.Store(true) // in the midst of things the network may come back
	_, err = c.Pull(t.Context(), repo, PullOptions{})
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
		wantKind(t, err, kind, "redirects")
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

// TestChaos has servers that fail in every way by chance. However often a pull has to
// be called, the final files are right, and no wrong blob is ever in the cache.
func TestChaos(t *testing.T) {
	for seed := range uint64(8) {
		h := newHub(t, tiny())
		var mu sync.Mutex
		chance := rand.New(rand.NewPCG(seed, 1))
		h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
			mu.Lock()
			roll, share := chance.IntN(12), chance.Float64()
			mu.Unlock()
			body := h.files[name]
			begin, end := rangeOf(r, len(body))
			n := int(share * float64(end-begin))
			switch {
			case r.Method != "GET":
				return false
			case roll == 0:
				w.WriteHeader(http.StatusServiceUnavailable)
			case roll == 1:
				w.WriteHeader(http.StatusForbidden)
			case roll == 2:
				_, _ = w.Write(body) // not the range
			case roll == 3:
				sendPart(w, r, append(bytes.Clone(body[:len(body)-1]), 'x'), `"cdn-1"`)
			case roll == 4:
				sendPart(w, r, body, `"cdn-2"`)
			case roll < 8:
				hangUp(w, fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nETag: \"cdn-1\"\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d",
					begin, end-1, len(body), end-begin), body[begin:begin+n])
			default:
				return false
			}
			return true
		}
		cache := t.TempDir()
		for try := 0; ; try++ {
			s, err := h.client(cache).Pull(t.Context(), repo, PullOptions{})
			if err == nil {
				h.wantFiles(s, needed...)
				break
			}
			if try == 200 {
				t.Fatalf("seed %d: still %v", seed, err)
			}
			if !Is(err, Refused) && !Is(err, Corrupt) && !Is(err, Unreachable) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// BenchmarkPull is a file of 64 MiB, over the loopback to disk, hash included.
func BenchmarkPull(b *testing.B) {
	body := make([]byte, 64<<20)
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api") {
			fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"model.safetensors"}]}`, commit)
			return
		}
		w.Header().Set("X-Repo-Commit", commit)
		w.Header().Set("ETag", `"`+hash+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}))
	defer server.Close()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		c, err := New(Config{Cache: b.TempDir(), Endpoint: server.URL})
		if err != nil {
			b.Fatal(err)
		}
		c.system.part = 16 << 20
		if _, err := c.Pull(b.Context(), repo, PullOptions{}); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
