package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestPullLaysOutTheCache(t *testing.T) {
	h := newHub(t, tiny())
	cache := t.TempDir()
	c := h.client(cache)
	s := pullAll(t, c)
	h.wantFiles(s, needed...)
	root := filepath.Join(cache, "models--acme--tiny")
	if want := filepath.Join(root, "snapshots", commit); s.Dir != want {
		t.Errorf("the snapshot is %s, want %s", s.Dir, want)
	}
	if ref, err := os.ReadFile(filepath.Join(root, "refs", "main")); string(ref) != commit {
		t.Errorf("refs/main holds %q, %v", ref, err)
	}
	for name, up := range map[string]string{"config.json": "../../", "additional_chat_templates/a.jinja": "../../../"} {
		link, err := os.Readlink(filepath.Join(s.Dir, name))
		if want := up + "blobs/" + hashOf(name, h.files[name]); link != want {
			t.Errorf("%s points at %q (%v), want %q", name, link, err, want)
		}
	}
	if dir, err := c.Cached(repo, ""); err != nil || dir != s.Dir {
		t.Errorf("Cached is %s, %v", dir, err)
	}
}

func TestPullAgainFetchesNothing(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	first := pullAll(t, c)
	if first.Fetched != first.Bytes {
		t.Errorf("fetched %d bytes of %d", first.Fetched, first.Bytes)
	}
	h.requests("GET")
	again := pullAll(t, c)
	if got := h.requests("GET"); again.Fetched != 0 || len(got) != 1 {
		t.Errorf("the second time %d bytes came, by %v", again.Fetched, got)
	}
}

func TestPullAnswersOfAServerThatSaysLittle(t *testing.T) {
	h := newHub(t, tiny())
	h.bareListing = true
	h.wantFiles(pullAll(t, h.client("")), needed...)
}

func TestPullFetchesPartsInParallel(t *testing.T) {
	h := newHub(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": shard("a", 9000)})
	c := h.client("")
	var gate sync.WaitGroup
	gate.Add(3) // three parts are asked for before one is sent
	var once [3]sync.Once
	i := 0
	h.cut = func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if r.Method == "GET" {
			h.mu.Lock()
			k := i
			i++
			h.mu.Unlock()
			if k < 3 {
				once[k].Do(gate.Done)
				gate.Wait()
			}
		}
		return false
	}
	h.wantFiles(pullAll(t, c), "config.json", "model.safetensors")
	if got := h.requests("GET"); !slices.Contains(got, "GET model.safetensors bytes=9000-9066") {
		t.Errorf("no request for the last part in %v", got)
	}
}

func TestPullPatterns(t *testing.T) {
	for _, test := range []struct {
		include, exclude []string
		want             string
	}{
		{[]string{"*.md", "*.py"}, nil, "README.md run.py"},
		{[]string{"onnx/"}, nil, "onnx/config.json"},
		{[]string{"*"}, []string{"*.safetensors*", "*/*", "*.json", "*.gguf", "*.bin"}, "README.md run.py"},
		{nil, []string{"*.safetensors", "*.jinja", "tok*"}, "config.json generation_config.json model.safetensors.index.json"},
	} {
		h := newHub(t, tiny())
		s, err := h.client("").Pull(t.Context(), repo, PullOptions{Include: test.include, Exclude: test.exclude})
		if err != nil {
			t.Fatal(err)
		}
		h.wantFiles(s, strings.Fields(test.want)...)
	}
	h := newHub(t, tiny())
	_, err := h.client("").Pull(t.Context(), repo, PullOptions{Include: []string{"*.exe"}})
	wantKind(t, err, NotFound, "acme/tiny", "*.exe")
	_, err = h.client("").Pull(t.Context(), repo, PullOptions{Include: []string{""}})
	wantKind(t, err, BadName)
}

func TestPullRevisions(t *testing.T) {
	h := newHub(t, tiny())
	cache := t.TempDir()
	c := h.client(cache)
	if _, err := c.Pull(t.Context(), repo, PullOptions{Revision: "refs/pr/7"}); err != nil {
		t.Fatal(err)
	}
	if got := h.requests("GET"); got[0] != "GET listing refs/pr/7" {
		t.Errorf("asked for %s", got[0])
	}
	if ref, _ := os.ReadFile(filepath.Join(cache, "models--acme--tiny/refs/refs/pr/7")); string(ref) != commit {
		t.Errorf("the ref holds %q", ref)
	}
	if _, err := c.Cached(repo, ""); !Is(err, NotCached) {
		t.Errorf("main was not pulled: %v", err)
	}
	if _, err := c.Cached(repo, commit); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"../x", "/x", "a//b", `a\b`, "a\x00", "con:x", "x."} {
		_, err := c.Pull(t.Context(), repo, PullOptions{Revision: bad})
		wantKind(t, err, BadName)
		_, err = c.Cached(repo, bad)
		wantKind(t, err, BadName)
	}
	h.commit = strings.Repeat("a", 40)
	_, err := c.Pull(t.Context(), repo, PullOptions{Revision: commit})
	wantKind(t, err, Corrupt, "got a listing of commit")
}

func TestProgressAddsUp(t *testing.T) {
	h := newHub(t, tiny())
	var last Progress
	inside := false
	s, err := h.client("").Pull(t.Context(), repo, PullOptions{Progress: func(p Progress) {
		if inside {
			t.Error("called while it runs")
		}
		inside = true
		if p.Done < 0 || p.Done > p.Total || p.AllDone > p.AllTotal {
			t.Errorf("progress %+v", p)
		}
		last, inside = p, false
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last.AllDone != s.Bytes || last.AllTotal != s.Bytes || last.Fetched != s.Bytes {
		t.Errorf("the last progress is %+v of %d bytes", last, s.Bytes)
	}
}

func TestPullOffline(t *testing.T) {
	h := newHub(t, tiny())
	cache := t.TempDir()
	offline := h.client(cache)
	offline.config.Offline = true
	_, err := offline.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Offline, "HF_HUB_OFFLINE", "acme/tiny")
	_, err = offline.FetchHeaders(t.Context(), repo, "")
	wantKind(t, err, Offline)
	pullAll(t, h.client(cache))
	h.server.Close()
	h.wantFiles(pullAll(t, offline), needed...)
}

func TestCachedWantsAllWeights(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	_, err := c.Cached(repo, "")
	wantKind(t, err, NotCached, "revision main is not in the cache")
	s := pullAll(t, c)
	for _, test := range []struct{ remove, want string }{
		{"model-2.safetensors", "1 of its 2 files"},
		{"model.safetensors.index.json", "no model.safetensors.index.json"},
		{"config.json", "no config.json"},
	} {
		blob, _ := filepath.EvalSymlinks(filepath.Join(s.Dir, test.remove))
		if err := os.Remove(blob); err != nil {
			t.Fatal(err)
		}
		_, err := c.Cached(repo, "")
		wantKind(t, err, NotCached, test.want)
	}
	h.wantFiles(pullAll(t, c), needed...) // missing files are downloaded again
}

func TestAnInterruptedPullLeavesTheRefAlone(t *testing.T) {
	h := newHub(t, tiny())
	c := h.client("")
	old := pullAll(t, c)
	h.commit = strings.Repeat("b", 40)
	h.files["model-2.safetensors"] = shard("b", 6000)
	h.behave(nil, func(w http.ResponseWriter, _ *http.Request, name string) bool {
		if name == "model-2.safetensors" {
			w.WriteHeader(http.StatusForbidden)
		}
		return name == "model-2.safetensors"
	})
	_, err := c.Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Refused)
	if dir, err := c.Cached(repo, ""); err != nil || dir != old.Dir {
		t.Errorf("Cached is %s, %v; want the old snapshot", dir, err)
	}
}

func TestNoSymlinks(t *testing.T) {
	no := func(string, string) error { return errors.New("no") }
	for _, links := range []bool{true, false} {
		h := newHub(t, tiny())
		c := h.client("")
		c.system.symlink = no
		if !links {
			c.system.link = no
		}
		s := pullAll(t, c)
		h.wantFiles(s, needed...)
		info, err := os.Lstat(filepath.Join(s.Dir, "config.json"))
		if err != nil || !info.Mode().IsRegular() {
			t.Errorf("config.json is %v, %v", info, err)
		}
		if again := pullAll(t, c); again.Fetched != 0 {
			t.Error("fetched again")
		}
	}
}

func TestReposWithoutWeights(t *testing.T) {
	for file, want := range map[string]string{
		"x.gguf":            "by its type",
		"pytorch_model.bin": "refs/pr/N",
		"README.md":         "no safetensors file in it",
	} {
		h := newHub(t, map[string][]byte{"config.json": []byte("{}"), file: []byte("x")})
		_, err := h.client("").Pull(t.Context(), repo, PullOptions{})
		wantKind(t, err, NoWeights, want)
		_, err = h.client("").FetchHeaders(t.Context(), repo, "")
		wantKind(t, err, NoWeights, want)
	}
}

// TestTwoProcesses pulls with two clients that know of each other by lock files only.
func TestTwoProcesses(t *testing.T) {
	h := newHub(t, tiny())
	cache := t.TempDir()
	clients := []*Client{h.client(cache), h.client(cache)}
	err := each(t.Context(), 2, clients, func(ctx context.Context, _ int, c *Client) error {
		s, err := c.Pull(ctx, repo, PullOptions{})
		if err == nil {
			h.wantFiles(s, needed...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for name, b := range h.files {
		if isLFS(name) && slices.Contains(needed, name) {
			want += int64(len(b))
		}
	}
	if sent := h.sent(); sent != want {
		t.Errorf("%d bytes were sent, want each once: %d", sent, want)
	}
}

func TestALockIsWaitedForAndGivenUpWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x", "y.lock")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := lock(ctx, path); err != why {
		t.Errorf("locking twice: %v", err)
	}
	unlock()
	if unlock, err = lock(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{"../config.json", "/config.json", `..\config.json`, "a/../../config.json", "config.json\x00", "", "a//b"} {
		h := newHub(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": noise(9)})
		h.list = func(w http.ResponseWriter, _ *http.Request) bool {
			quoted, _ := json.Marshal(name)
			fmt.Fprintf(w, `{"sha":%q,"siblings":[{"rfilename":"config.json"},{"rfilename":%s}]}`, commit, quoted)
			return true
		}
		_, err := h.client("").Pull(t.Context(), repo, PullOptions{})
		wantKind(t, err, Corrupt, "the listing has a file")
	}
	// A name that some systems do not have is refused where it is asked for.
	h := newHub(t, map[string][]byte{"config.json": []byte("{}"), "aux:x.safetensors": noise(9)})
	_, err := h.client("").Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, BadName, "aux:x.safetensors")
	h = newHub(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors.index.json": []byte(`{"weight_map":{"a":"../../x.safetensors"}}`)})
	_, err = h.client("").Pull(t.Context(), repo, PullOptions{})
	wantKind(t, err, Corrupt, "model.safetensors.index.json", "not a safetensors file beside it")
}
