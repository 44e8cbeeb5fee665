package hub

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
)

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
	wantKind(t, err, Corrupt, "model.safetensors", "got 19 bytes")
	h.behave(nil, nil)
	s := pullAll(t, h.client(cache))
	h.wantFiles(s, "config.json", "model.safetensors")
	if want := int64(len(h.files["model.safetensors"]) - 5000); s.Fetched != want {
		t.Errorf("fetched %d bytes, want %d", s.Fetched, want)
	}
}
