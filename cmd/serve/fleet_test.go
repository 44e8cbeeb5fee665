package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
)

// shelf is a folder of models with copies of the demo under the given names.
func shelf(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.CopyFS(filepath.Join(dir, filepath.FromSlash(name)), demo.Files()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fleetOf wires the models of the flags, without a listener.
func fleetOf(t *testing.T, c runCmd) *service {
	t.Helper()
	c.placeFlags.DeviceMap, c.MaxQueue, c.Lazy = cmp.Or(c.placeFlags.DeviceMap, "auto"), cmp.Or(c.MaxQueue, 8), true
	c.sizeFlags = sizeFlags{Dtype: "auto", KVDtype: "auto", Precision: "auto", MaxBatch: 2, Threads: 1, CacheDir: "none", MaxModelLen: 256, LongLen: true} // of models made for 64
	if c.LoadTimeout == 0 {
		c.LoadTimeout = time.Minute
	}
	w, err := c.request()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.build(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// ask sends a request to the handler.
func (s *service) ask(t *testing.T, method, path, body string) (status int, object map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	s.server.Handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if err := json.Unmarshal(w.Body.Bytes(), &object); err != nil {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Code, object
}

// complete returns the text of a short answer of a model.
func (s *service) complete(t *testing.T, model string) string {
	t.Helper()
	status, answer := s.ask(t, "POST", "/v1/completions", `{"model":"`+model+`","prompt":[5,6,7,8],"max_tokens":8,"ignore_eos":true,"temperature":0}`)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %v", model, status, answer)
	}
	return answer["choices"].([]any)[0].(map[string]any)["text"].(string)
}

// states are the models of /v1/models with their status.
func (s *service) states(t *testing.T) map[string]string {
	t.Helper()
	_, list := s.ask(t, "GET", "/v1/models", "")
	states := map[string]string{}
	for _, m := range list["data"].([]any) {
		card := m.(map[string]any)
		states[card["id"].(string)], _ = card["status"].(string)
	}
	return states
}

// TestModelsOfAFolderAreServed: folders and ORG/NAME, none of which is loaded before a request; no link that leads out.
func TestModelsOfAFolderAreServed(t *testing.T) {
	outside := shelf(t, "secret")
	dir := shelf(t, "a", "org/b")
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "c")); err != nil {
		t.Skip("this system makes no links: ", err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}})
	if got := s.states(t); len(got) != 3 || got["a"] != "known" || got["org/b"] != "known" || got["d"] != "known" {
		t.Errorf("before a request: %v", got)
	}
	if status, _ := s.ask(t, "GET", "/ready", ""); status != http.StatusOK {
		t.Errorf("/ready: %d", status)
	}
	if one, other := s.complete(t, "a"), s.complete(t, "org/b"); one != other || one == "" {
		t.Errorf("two copies of a model answer %q and %q", one, other)
	}
	if got := s.states(t); got["a"] != "ready" || got["org/b"] != "ready" || got["d"] != "known" {
		t.Errorf("after requests: %v", got)
	}
	for _, name := range []string{"c", "../" + filepath.Base(outside) + "/secret", filepath.Join(outside, "secret"), "a/../org/b", "org"} {
		if status, answer := s.ask(t, "POST", "/v1/completions", `{"model":"`+name+`","prompt":[1]}`); status != http.StatusNotFound {
			t.Errorf("model %s: %d %v", name, status, answer)
		}
	}
}

// TestModelsKeepOneMemoryContract: of models that do not fit together the idle one leaves; the plans of those that are
// loaded are together within the limit, with one row for the runtime and one for requests; answers stay the same.
func TestModelsKeepOneMemoryContract(t *testing.T) {
	dir := shelf(t, "a", "b", "c")
	alone := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}})
	want := alone.complete(t, "a")
	least := alone.fleet.loaded[0].model.Plan().Least
	for _, limit := range []int64{least, least + 3<<20, least + 24<<20, least + 200<<20} {
		s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}, placeFlags: placeFlags{MaxMemory: "cpu=" + devicemap.FormatSize(limit)}})
		s.fleet.setLimit(limit, 0)
		most := 0
		for _, name := range strings.Split("a b c a a c b a", " ") {
			if got := s.complete(t, name); got != want {
				t.Errorf("limit %d: %s answers %q, want %q", limit, name, got, want)
			}
			sum := int64(dispatch.RuntimeBytes) + dispatch.RequestMemory(limit)
			for _, l := range s.fleet.loaded {
				sum += l.takes()
			}
			if most = max(most, len(s.fleet.loaded)); sum > limit {
				t.Errorf("limit %d: the plans of %d models are %d bytes together", limit, len(s.fleet.loaded), sum)
			}
		}
		switch {
		case limit == least && most != 1:
			t.Errorf("limit %d: %d models are loaded at once, want 1", limit, most)
		case limit >= least+200<<20 && most != 3:
			t.Errorf("limit %d: %d models are loaded at once, want 3", limit, most)
		}
	}
}

// TestMemoryForAdaptersCountsOnce: --lora-memory is one part of the limit, however many models are loaded.
func TestMemoryForAdaptersCountsOnce(t *testing.T) {
	dir := shelf(t, "a", "b", "c")
	alone := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}})
	want := alone.complete(t, "a")
	limit := alone.fleet.loaded[0].model.Plan().Least + 350<<20
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}, placeFlags: placeFlags{MaxMemory: "cpu=" + devicemap.FormatSize(limit)},
		loraDirFlags: loraDirFlags{LoraDir: t.TempDir(), LoraMemory: "150MiB"}})
	s.fleet.setLimit(limit, 0)
	for _, name := range []string{"a", "b", "c"} {
		if got := s.complete(t, name); got != want {
			t.Errorf("%s answers %q, want %q", name, got, want)
		}
	}
	sum := s.fleet.once(limit)
	for _, l := range s.fleet.loaded {
		sum += l.takes()
	}
	if n := len(s.fleet.loaded); n != 3 || sum > limit {
		t.Errorf("%d models are loaded, want 3; they take %d of %d bytes together", n, sum, limit)
	}
}

// TestTheFirstModelIsLoadedAtTheStart, and those of further flags and of the folder on demand; names are unique.
func TestTheFirstModelIsLoadedAtTheStart(t *testing.T) {
	dir := shelf(t, "a", "b")
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir, Model: []string{"x=" + filepath.Join(dir, "a"), filepath.Join(dir, "b")}}})
	if got := s.states(t); len(got) != 3 || got["x"] != "ready" || got["b"] != "known" || got["a"] != "known" {
		t.Errorf("models: %v", got)
	}
	for _, args := range []string{"--model x=" + dir + "/a --model x=" + dir + "/b", "--model " + dir + "/a " + dir + "/b", "--model =" + dir,
		"--model " + dir + "/a --model " + dir + "/b --served-model-name s", "--models-dir " + dir + "/a/none", "--models-dir " + t.TempDir(), "--load-timeout 0s", "--idle-unload=-1s"} {
		misuse{args, 2, "-"}.check(t)
	}
}

// TestRequestsOfAFolderFollowTheLimit: without a first model, too, HTTP's memory for requests follows the limit.
func TestRequestsOfAFolderFollowTheLimit(t *testing.T) {
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: shelf(t, "a")}, placeFlags: placeFlags{MaxMemory: "cpu=4GiB"}})
	if n := len(s.fleet.notify); n != 2 { // requests, and the store in memory
		t.Errorf("%d parts of HTTP follow the limit, want 2", n)
	}
	var got []int64
	s.fleet.notifyRequests(func(n int64) { got = append(got, n) })
	for _, limit := range []int64{512 << 20, 4 << 30} {
		s.fleet.setLimit(limit, 0)
	}
	if want := []int64{dispatch.RequestMemory(512 << 20), dispatch.RequestMemory(4 << 30)}; !slices.Equal(got, want) || got[0] >= got[1] {
		t.Errorf("memory for requests: got %d, want %d", got, want)
	}
}

// TestABrokenModelOfAFolderLeavesTheOthers: its requests are 503 with the reason.
func TestABrokenModelOfAFolderLeavesTheOthers(t *testing.T) {
	dir := shelf(t, "a", "b")
	if err := os.Truncate(filepath.Join(dir, "a", "model.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	s := fleetOf(t, runCmd{servedFlags: servedFlags{ModelsDir: dir}})
	if status, answer := s.ask(t, "POST", "/v1/completions", `{"model":"a","prompt":[1]}`); status != http.StatusServiceUnavailable {
		t.Errorf("a broken model: %d %v", status, answer)
	}
	if s.complete(t, "b"); s.states(t)["a"] != "failed" {
		t.Errorf("states: %v", s.states(t))
	}
}
