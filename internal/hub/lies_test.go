package hub

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// header has the hub say something else about the model's file.
func header(key, value string) func(*fakeHub) {
	return func(h *fakeHub) {
		h.resolve = func(w http.ResponseWriter, _ *http.Request, name string) bool {
			if name == "model.safetensors" {
				w.Header().Set(key, value)
			}
			return false
		}
	}
}

// cdn has the server where the bytes lie answer every GET as do does.
func cdn(do http.HandlerFunc) func(*fakeHub) {
	return func(h *fakeHub) {
		h.cut = func(w http.ResponseWriter, r *http.Request, _ string) bool {
			if r.Method == "GET" {
				do(w, r)
			}
			return r.Method == "GET"
		}
	}
}

// TestServersThatContradictThemselves has servers that contradict themselves in one way each. Nothing of the file
// is put into the cache.
func TestServersThatContradictThemselves(t *testing.T) {
	const name = "model.safetensors"
	body := weights()[name]
	other := bytes.Clone(body)
	other[5432] ^= 1
	longer := append(bytes.Clone(body), 1)
	for _, test := range []struct {
		lie  string
		set  func(*fakeHub)
		kind Kind
		says string
	}{
		{"size in the headers", header("X-Linked-Size", "77"), Corrupt, "the listing has 9967"},
		{"hash in the headers", header("X-Linked-Etag", `"`+strings.Repeat("a", 64)+`"`), Corrupt, "got the hash aaaa"},
		{"no hash", header("X-Linked-Etag", `"v1"`), Corrupt, "want a hash of the file"},
		{"path for a hash", header("X-Linked-Etag", `"../../x"`), Corrupt, "want a hash of the file"},
		{"no size", header("X-Linked-Size", "many"), Corrupt, "does not give the size"},
		{"other commit", header("X-Repo-Commit", strings.Repeat("c", 40)), Corrupt, "got an answer for commit"},
		{"no commit", header("X-Repo-Commit", ""), Corrupt, "is the endpoint a hub?"},
		{"other bytes", cdn(func(w http.ResponseWriter, r *http.Request) { sendPart(w, r, other, `"1"`) }), Corrupt, "got a file with hash"},
		{"longer file", cdn(func(w http.ResponseWriter, r *http.Request) { sendPart(w, r, longer, `"1"`) }), Corrupt, "got parts of a file of"},
		{"other part", cdn(func(w http.ResponseWriter, r *http.Request) {
			begin, end := rangeOf(r, len(body))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin+1, end, len(body)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(body[:end-begin])
		}), Corrupt, "got the range"},
		{"part without a range", cdn(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusPartialContent) }), Corrupt, `got the range ""`},
		{"changing tag", cdn(func(w http.ResponseWriter, r *http.Request) { sendPart(w, r, body, `"`+r.Header.Get("Range")+`"`) }), Corrupt, "the file changed on the server"},
		{"whole of another size", cdn(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(body[:100]) }), Corrupt, "got 100 bytes"},
		{"encoded", cdn(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			sendPart(w, r, body, `"1"`)
		}), Corrupt, "encoded as gzip"},
		{"too few bytes", cdn(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }), Corrupt, "fewer bytes"},
		{"cut each time", cdn(func(w http.ResponseWriter, r *http.Request) {
			begin, end := rangeOf(r, len(body))
			hangUp(w, fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d", begin, end-1, len(body), end-begin), nil)
		}), Unreachable, "the connection was cut (tried 6 times): unexpected EOF"},
		{"more than said", cdn(func(w http.ResponseWriter, r *http.Request) {
			begin, end := rangeOf(r, len(body))
			hangUp(w, fmt.Sprintf("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d", begin, end-1, len(body)), body)
		}), Corrupt, "more bytes than it announced"},
		{"gone meanwhile", cdn(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) }), NotFound, ""},
	} {
		t.Run(test.lie, func(t *testing.T) {
			h := newHub(t, weights())
			test.set(h)
			cache := t.TempDir()
			c := h.client(cache)
			_, err := c.Pull(t.Context(), repo, PullOptions{})
			wantKind(t, err, test.kind, name, test.says)
			wantAbsent(t, filepath.Join(cache, "models--acme--tiny"), "blobs/"+hashOf(name, body), "snapshots/*/"+name, "refs/main")
			h.behave(nil, nil)
			h.wantFiles(pullAll(t, c), "config.json", name) // an honest server is enough
		})
	}
}

// TestLiesOfTheListing has listings that no hub sends.
func TestLiesOfTheListing(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                "cannot be read",
		`{"sha":"../../x"}`: "want a hash",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"a"},{"rfilename":"a"}]}`:             "twice",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"a","blobId":"../a"}]}`:               "the hash ../a",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"a","size":-5}]}`:                     "-5 bytes",
		`{"sha":"` + commit + `","siblings":[{"rfilename":"a","lfs":{"sha256":"x","size":5}}]}`: "the hash x",
	} {
		_, err := parseListing([]byte(text))
		wantKind(t, err, Corrupt, want)
	}
}

// wantAbsent fails where a file below root matches a pattern.
func wantAbsent(t *testing.T, root string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			t.Errorf("the cache holds %v", found)
		}
	}
}
