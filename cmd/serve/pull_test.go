package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/loader/demo"
)

// startHub is a hub on the loopback that has the demo model as acme/demo, and the
// environment of a user of it. It counts the bytes of weights that were asked for.
func startHub(t *testing.T) (weights *atomic.Int64) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	files := map[string][]byte{"README.md": []byte("hello")}
	entries, err := fs.ReadDir(demo.Files(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = fs.ReadFile(demo.Files(), e.Name()); err != nil {
			t.Fatal(err)
		}
	}
	weights = new(atomic.Int64)
	hash := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	mux := http.NewServeMux()
	mux.HandleFunc("/api/models/acme/demo/revision/main", func(w http.ResponseWriter, _ *http.Request) {
		var siblings []map[string]any
		for name, b := range files {
			siblings = append(siblings, map[string]any{"rfilename": name, "lfs": map[string]any{"sha256": hash(b), "size": len(b)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
	})
	mux.HandleFunc("/acme/demo/resolve/"+commit+"/{file}", func(w http.ResponseWriter, r *http.Request) {
		b, ok := files[r.PathValue("file")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Repo-Commit", commit)
		w.Header().Set("ETag", `"`+hash(b)+`"`)
		if r.Method == "GET" && strings.HasSuffix(r.PathValue("file"), ".safetensors") {
			var first, last int64
			if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 {
				weights.Add(last + 1 - first)
			} else {
				weights.Add(int64(len(b)))
			}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, name := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN_PATH"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", server.URL)
	return weights
}

func TestPullThenPlan(t *testing.T) {
	weights := startHub(t)
	_, stderr := command(t, 1, "bench", "acme/demo")
	if !strings.Contains(stderr, "serve pull acme/demo") {
		t.Errorf("what to do about a model that is not in the cache: %s", stderr)
	}
	planned, _ := command(t, 0, "plan", "acme/demo", "--json", "--no-probe", "--max-memory", "cpu=1GiB")
	size, err := fs.Stat(demo.Files(), "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if n := weights.Load(); n == 0 || n > size.Size()/2 {
		t.Errorf("a plan fetched %d bytes of %d", n, size.Size())
	}
	stdout, stderr := command(t, 0, "pull", "acme/demo")
	dir := strings.TrimSuffix(stdout, "\n")
	if want := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--acme--demo", "snapshots"); filepath.Dir(dir) != want {
		t.Errorf("printed %q", stdout)
	}
	if !strings.Contains(stderr, "model.safetensors") || !strings.Contains(stderr, "fetched") || strings.Contains(stderr, "\x1b") {
		t.Errorf("progress, not on a terminal: %q", stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "README.md")); err == nil {
		t.Error("pulled what serving does not need")
	}
	for _, model := range []string{"acme/demo", "acme/demo@" + filepath.Base(dir), dir} {
		if again, _ := command(t, 0, "plan", model, "--json", "--no-probe", "--max-memory", "cpu=1GiB"); again != planned {
			t.Errorf("the plan of %s is another than that of headers alone:\n%s\n%s", model, again, planned)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	stdout, _ = command(t, 0, "pull", "--json", "--model", "acme/demo")
	var got hub.Snapshot
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got.Dir != dir || got.Repo != "acme/demo" || got.Bytes < size.Size() {
		t.Errorf("%s, %v", stdout, err)
	}
}

func TestPullRefuses(t *testing.T) {
	startHub(t)
	for _, test := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, "got no model, want serve pull ORG/NAME", nil},
		{2, "is not the name of a model", []string{"../x"}},
		{2, "given twice", []string{"acme/demo@a", "--revision", "b"}},
		{2, "leads out of the folder", []string{"acme/demo", "--revision", "../b"}},
		{1, "there is no such model", []string{"acme/other"}},
		{1, "no file of the revision matches", []string{"acme/demo", "--include", "*.exe,*.dll"}},
	} {
		if _, stderr := command(t, test.status, append([]string{"pull"}, test.args...)...); !strings.Contains(stderr, test.want) {
			t.Errorf("pull %v: %s", test.args, stderr)
		}
	}
	_, stderr := command(t, 1, "plan", "acme/other")
	if !strings.Contains(stderr, "no folder acme/other") || !strings.Contains(stderr, "no such model") {
		t.Errorf("plan of nothing: %s", stderr)
	}
}

// TestPullViewOnATerminal draws bars, and takes them away for the line of a whole file.
func TestPullViewOnATerminal(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	v := newPullView(cmdline.Diagnostics{Writer: &out})
	v.terminal, v.since, v.drawn = true, now, now
	v.now = func() time.Time { now = now.Add(500 * time.Millisecond); return now }
	long := strings.Repeat("x", 60) + "-00001-of-00002.safetensors"
	for i := range int64(4) {
		v.tell(hub.Progress{File: long, Done: i << 20, Total: 4 << 20, AllDone: i << 20, AllTotal: 8 << 20, Fetched: i << 20})
	}
	bars := out.String()
	for _, want := range []string{"██", "░ ", " 75%", "…", "-00001-of-00002.safetensors\n", "\x1b[2A\x1b[J", "3.0 MiB of 8.0 MiB, ", "/s, ", " left"} {
		if !strings.Contains(bars, want) {
			t.Errorf("no %q in %q", want, bars)
		}
	}
	out.Reset()
	v.tell(hub.Progress{File: long, Done: 4 << 20, Total: 4 << 20, AllDone: 4 << 20, AllTotal: 8 << 20, Fetched: 4 << 20})
	if s := out.String(); !strings.HasPrefix(s, "\x1b[2A\x1b[J"+long+"  4.0 MiB\n") {
		t.Errorf("a whole file: %q", s)
	}
	out.Reset()
	v.end(nil)
	if s := out.String(); s != "\x1b[1A\x1b[J" {
		t.Errorf("the end: %q", s)
	}
	if s := shown("a\u009bb\x1b"); s != "a?b?" {
		t.Errorf("%q reaches the terminal", s)
	}
}
