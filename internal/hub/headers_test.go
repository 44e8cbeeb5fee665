package hub

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// big is a model in two shards, the header of one longer than the first request.
func big() map[string][]byte {
	files := tiny()
	files["model-1.safetensors"] = shard(strings.Repeat("long", firstBytes/4), 50000)
	files["model-2.safetensors"] = shard("b", 200000)
	files[quantName] = []byte(`{"quantization": {"quant_algo": "FP8"}}`)
	return files
}

func wantHeads(t *testing.T, h *fakeHub, got *Headers) {
	t.Helper()
	if !bytes.Equal(got.Config, h.files["config.json"]) || !bytes.Equal(got.Index, h.files["model.safetensors.index.json"]) {
		t.Errorf("config %s, index %s", got.Config, got.Index)
	}
	if !bytes.Equal(got.Quant, h.files[quantName]) {
		t.Errorf("%s: got %q, want %q", quantName, got.Quant, h.files[quantName])
	}
	if len(got.Shards) != 2 || got.Commit != commit || got.Repo != "acme/tiny" {
		t.Fatalf("%d shards of %s at %s", len(got.Shards), got.Repo, got.Commit)
	}
	for _, s := range got.Shards {
		want := h.files[s.Name]
		n := lengthSize + int(want[0]) + int(want[1])<<8
		if s.Size != int64(len(want)) || !bytes.Equal(s.Head, want[:n]) {
			t.Errorf("%s: %d bytes of %d, want %d of %d", s.Name, len(s.Head), s.Size, n, len(want))
		}
	}
}

func TestFetchHeaders(t *testing.T) {
	for _, bare := range []bool{false, true} {
		h := newHub(t, big())
		h.bareListing = bare
		cache := t.TempDir()
		c := h.client(cache)
		got, err := c.FetchHeaders(t.Context(), repo, "")
		if err != nil {
			t.Fatal(err)
		}
		wantHeads(t, h, got)
		if sent := h.sent(); sent > 3*firstBytes || got.Fetched != sent {
			t.Errorf("%d bytes were sent for two headers, %d are said", sent, got.Fetched)
		}
		if _, err := c.Cached(repo, commit); !Is(err, NotCached) {
			t.Errorf("headers pass for a model: %v", err)
		}
		if found, _ := filepath.Glob(filepath.Join(cache, "*", "refs", "*")); len(found) > 0 {
			t.Errorf("the ref was written: %v", found)
		}
		got, err = c.FetchHeaders(t.Context(), repo, "")
		if err != nil {
			t.Fatal(err)
		}
		wantHeads(t, h, got)
		if got.Fetched != 0 {
			t.Errorf("%d bytes came again", got.Fetched)
		}
	}
}

func TestFetchHeadersOfWhatIsThere(t *testing.T) {
	h := newHub(t, big())
	c := h.client("")
	c.system.part = 1 << 20
	pullAll(t, c)
	got, err := c.FetchHeaders(t.Context(), repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	wantHeads(t, h, got)
	if got.Fetched != 0 {
		t.Errorf("%d bytes came", got.Fetched)
	}
}

// TestFetchHeadersIgnoringRanges has a server that sends all; what follows the header is
// not read.
func TestFetchHeadersIgnoringRanges(t *testing.T) {
	h := newHub(t, big())
	h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(h.files[name])))
		_, _ = w.Write(h.files[name])
		return true
	}
	got, err := h.client("").FetchHeaders(t.Context(), repo, "")
	if err != nil {
		t.Fatal(err)
	}
	wantHeads(t, h, got)
}

func TestFetchHeadersOfLiars(t *testing.T) {
	for _, test := range []struct {
		lie, says string
		body      []byte
		tag       string
	}{
		{"no header", "not a safetensors file", bytes.Repeat([]byte{0xff}, 30000), `"1"`},
		{"header beyond the file", "not a safetensors file", append([]byte{0, 0, 0, 1, 0, 0, 0, 0}, noise(30000)...), `"1"`},
		{"few bytes", "too few for a safetensors file", []byte("hello"), `"1"`},
		{"changing tag", "changed on the server", big()["model-1.safetensors"], ""},
	} {
		t.Run(test.lie, func(t *testing.T) {
			h := newHub(t, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": test.body})
			h.cut = func(w http.ResponseWriter, r *http.Request, name string) bool {
				tag := test.tag
				if tag == "" {
					tag = `"` + r.Header.Get("Range") + `"`
				}
				sendPart(w, r, test.body, tag)
				return true
			}
			_, err := h.client("").FetchHeaders(t.Context(), repo, "")
			wantKind(t, err, Corrupt, "model.safetensors", test.says)
		})
	}
}

// TestAKeptHeaderThatIsDamaged is fetched again.
func TestAKeptHeaderThatIsDamaged(t *testing.T) {
	h := newHub(t, big())
	cache := t.TempDir()
	c := h.client(cache)
	if _, err := c.FetchHeaders(t.Context(), repo, ""); err != nil {
		t.Fatal(err)
	}
	kept, _ := filepath.Glob(filepath.Join(cache, "models--acme--tiny", "headers", "*"))
	if len(kept) != 2 {
		t.Fatalf("kept %v", kept)
	}
	for i, path := range kept {
		if err := os.Truncate(path, int64(4+20*i)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.FetchHeaders(t.Context(), repo, "")
	if err != nil {
		t.Fatal(err)
	}
	wantHeads(t, h, got)
}
