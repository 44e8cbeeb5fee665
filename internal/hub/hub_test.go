package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	commit = "0123456789abcdef0123456789abcdef01234567"
	secret = "hf_verysecret"
)

var repo = Repo{Org: "acme", Name: "tiny"}

// A fakeHub is a hub on the loopback: a server for names and a second one, on another
// port, where big files lie. Its hooks answer a request themselves where they return true.
type fakeHub struct {
	t            *testing.T
	server, cdn  *httptest.Server
	files        map[string][]byte
	commit       string
	bareListing  bool // no sizes and hashes in it
	resolve, cut hook // answer for the hub, and where big files lie
	list         func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	log   []string // METHOD NAME RANGE
	bytes int64    // that the second server sent
}

func newHub(t *testing.T, files map[string][]byte) *fakeHub {
	h := &fakeHub{t: t, files: files, commit: commit}
	h.server = httptest.NewServer(http.HandlerFunc(h.serveHub))
	h.cdn = httptest.NewServer(http.HandlerFunc(h.serveCDN))
	t.Cleanup(func() { h.server.Close(); h.cdn.Close() })
	return h
}

func isLFS(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || name == "tokenizer.json"
}

func hashOf(name string, b []byte) string {
	if isLFS(name) {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(b), b))
	return hex.EncodeToString(sum[:])
}

func (h *fakeHub) note(r *http.Request, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, strings.TrimSpace(r.Method+" "+name+" "+r.Header.Get("Range")))
}

// sent is how many bytes the second server sent.
func (h *fakeHub) sent() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// requests is those seen of a method, and forgets all.
func (h *fakeHub) requests(method string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var some []string
	for _, l := range h.log {
		if strings.HasPrefix(l, method+" ") {
			some = append(some, l)
		}
	}
	h.log = nil
	return some
}

type hook = func(w http.ResponseWriter, r *http.Request, name string) bool

func (h *fakeHub) hooks() (resolve, cut hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resolve, h.cut
}

// behave replaces the hooks, while requests may still be answered.
func (h *fakeHub) behave(resolve, cut hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resolve, h.cut = resolve, cut
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/acme/tiny/revision/"); ok {
		h.note(r, "listing "+rest)
		if h.list == nil || !h.list(w, r) {
			_, _ = w.Write(h.listing())
		}
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/acme/tiny/resolve/"+h.commit+"/")
	body, there := h.files[name]
	if !ok || !there {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	w.Header().Set("X-Repo-Commit", h.commit)
	if isLFS(name) {
		w.Header().Set("X-Linked-Etag", `"`+hashOf(name, body)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(body)))
	}
	if hook, _ := h.hooks(); hook != nil && hook(w, r, name) {
		return
	}
	if isLFS(name) {
		http.Redirect(w, r, h.cdn.URL+"/lfs/"+name+"?signature=secret", http.StatusFound)
		return
	}
	h.note(r, name)
	w.Header().Set("ETag", `"`+hashOf(name, body)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

func (h *fakeHub) serveCDN(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/lfs/")
	h.note(r, name)
	if r.Header.Get("Authorization") != "" {
		h.t.Errorf("the token was sent to another host, for %s", name)
	}
	if _, hook := h.hooks(); hook != nil && hook(w, r, name) {
		return
	}
	w.Header().Set("ETag", `"cdn-1"`)
	http.ServeContent(counted{w, h}, r, "", time.Time{}, bytes.NewReader(h.files[name]))
}

// counted counts the bytes of bodies.
type counted struct {
	http.ResponseWriter
	hub *fakeHub
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.hub.mu.Lock()
	c.hub.bytes += int64(n)
	c.hub.mu.Unlock()
	return n, err
}

func (h *fakeHub) listing() []byte {
	var siblings []map[string]any
	for name, b := range h.files {
		s := map[string]any{"rfilename": name}
		if !h.bareListing {
			s["size"], s["blobId"] = len(b), hashOf("", b)
			if isLFS(name) {
				s["lfs"] = map[string]any{"sha256": hashOf(name, b), "size": len(b)}
			}
		}
		siblings = append(siblings, s)
	}
	text, _ := json.Marshal(map[string]any{"sha": h.commit, "siblings": siblings})
	return text
}

// client is one for the hub, with a cache of its own unless one is given. It does not wait
// in earnest, and cuts files into parts of 1000 bytes.
func (h *fakeHub) client(cache string) *Client {
	h.t.Helper()
	if cache == "" {
		cache = h.t.TempDir()
	}
	c, err := New(Config{Cache: cache, Endpoint: h.server.URL, Token: secret})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(c.Close)
	c.system.part = 1000
	c.system.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return c
}

// noise is n bytes that do not repeat.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = r.Read(b)
	return b
}

// shard is a safetensors file with one tensor of n bytes.
func shard(tensor string, n int) []byte {
	header := fmt.Sprintf(`{%q:{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, tensor, n, n)
	b := append([]byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}, header...)
	return append(b, noise(n)...)
}

// tiny is a model in two shards, with other files that are not needed.
func tiny() map[string][]byte {
	return map[string][]byte{
		"config.json":                       []byte(`{"model_type":"llama"}`),
		"generation_config.json":            {},
		"tokenizer.json":                    noise(2500),
		"tokenizer_config.json":             []byte(`{}`),
		"additional_chat_templates/a.jinja": []byte(`{{ a }}`),
		"model.safetensors.index.json":      []byte(`{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}`),
		"model-1.safetensors":               shard("a", 5000),
		"model-2.safetensors":               shard("b", 7321),
		"consolidated.safetensors":          noise(10),
		"original/model.safetensors":        noise(10),
		"pytorch_model.bin":                 noise(10),
		"model.gguf":                        noise(10),
		"onnx/config.json":                  []byte(`{}`),
		"README.md":                         []byte(`hello`),
		"run.py":                            []byte(`print()`),
	}
}

// needed is what of tiny serving needs.
var needed = []string{
	"additional_chat_templates/a.jinja", "config.json", "generation_config.json", "model-1.safetensors",
	"model-2.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
}

func pullAll(t *testing.T, c *Client) *Snapshot {
	t.Helper()
	s, err := c.Pull(t.Context(), repo, PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantFiles compares a snapshot with the files of the hub.
func (h *fakeHub) wantFiles(s *Snapshot, names ...string) {
	h.t.Helper()
	if got, want := strings.Join(s.Files, " "), strings.Join(names, " "); got != want {
		h.t.Errorf("pulled %s, want %s", got, want)
	}
	for _, name := range names {
		got, err := os.ReadFile(filepath.Join(s.Dir, filepath.FromSlash(name)))
		if err != nil {
			h.t.Error(err)
		} else if !bytes.Equal(got, h.files[name]) {
			h.t.Errorf("%s has other bytes", name)
		}
	}
	found, _ := walk(s.Dir)
	if got := strings.Join(found, " "); got != strings.Join(names, " ") {
		h.t.Errorf("the snapshot holds %s", got)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.Dir), "..", "blobs", "*.heft.*"))
	if len(left) > 0 {
		h.t.Errorf("left behind: %v", left)
	}
}

func wantKind(t *testing.T, err error, kind Kind, parts ...string) {
	t.Helper()
	if !Is(err, kind) {
		t.Fatalf("error %v, want one of kind %d", err, kind)
	}
	for _, part := range append(parts, "hub: ") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "signature") {
		t.Errorf("error %q tells a secret", err)
	}
}
