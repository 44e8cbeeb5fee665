package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/internal/golden"
)

// adapterShelf is a folder of adapters with copies of the fixture under the given names: "final" adds something to the
// base, "init" nothing. It also has a link that leads out.
func adapterShelf(t *testing.T, names map[string]string) string {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(golden.Module(t), "testdata", "golden", "train", "lora", "*"))
	if err != nil || len(runs) == 0 {
		t.Fatalf("no adapter: %v", err)
	}
	dir := t.TempDir()
	for name, from := range names {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(runs[0], from))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tinyBase is the folder of the model that the adapters are for.
func tinyBase(t *testing.T) string {
	t.Helper()
	from := filepath.Join(golden.Module(t), "testdata", "golden", "train", "models", "llama")
	dir := filepath.Join(t.TempDir(), "tiny-base")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"config.json": "config.json", "init.safetensors": "model.safetensors"} {
		data, err := golden.Read(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ids returns the tokens of a short answer of a model.
func (s *service) ids(t *testing.T, model string) string {
	t.Helper()
	status, answer := s.ask(t, "POST", "/v1/completions", `{"model":"`+model+`","prompt":[5,6,7,8],"max_tokens":6,"ignore_eos":true,"temperature":0,"logprobs":1}`)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %v", model, status, answer)
	}
	return fmt.Sprint(answer["choices"].([]any)[0].(map[string]any)["logprobs"])
}

// post sends a request with a key and returns the status and the text.
func (s *service) post(path, key, body string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	s.server.Handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestAdaptersOfAFolderComeAndGo: those of --lora-dir are listed with their parent, mixed in one batch with the bits of
// single runs, loaded and unloaded by clients.
func TestAdaptersOfAFolderComeAndGo(t *testing.T) {
	shelf := adapterShelf(t, map[string]string{"final": "final", "zero": "init"})
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{tinyBase(t)}}, loraDirFlags: loraDirFlags{LoraDir: shelf}})
	_, list := s.ask(t, "GET", "/v1/models", "")
	for i, want := range []string{"tiny-base", "final", "zero"} {
		card := list["data"].([]any)[i].(map[string]any)
		if parent := card["parent"]; card["id"] != want || (parent == nil) != (i == 0) || i > 0 && (parent != "tiny-base" || card["status"] != "known") {
			t.Errorf("model %d: %v", i, card)
		}
	}
	plain, final := s.ids(t, "tiny-base"), s.ids(t, "final")
	if plain == final || s.ids(t, "zero") != plain {
		t.Errorf("the base gives %s, final %s, zero %s", plain, final, s.ids(t, "zero"))
	}
	if status, text := s.post("/v1/load_lora_adapter", "", `{"lora_name":"again","lora_path":"final"}`); status != http.StatusOK || text != "Success: LoRA adapter 'again' added successfully." {
		t.Errorf("load: %d %s", status, text)
	}
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			name := []string{"tiny-base", "final", "zero", "again"}[i%4]
			if got, want := s.ids(t, name), []string{plain, final}[i%2]; got != want {
				t.Errorf("beside others %s gives %s, want %s", name, got, want)
			}
		})
	}
	wait.Wait()
	for _, body := range []string{`{"lora_name":"again","lora_path":"zero"}`, `{"lora_name":"tiny-base","lora_path":"zero"}`, `{"lora_name":"","lora_path":"zero"}`, `{"lora_path":"zero"}`, `{"lora_name":"x"}`,
		`{"lora_name":"x","lora_path":"zero","load_inplace":true}`, `{"lora_name":"x\n","lora_path":"zero"}`} {
		if status, text := s.post("/v1/load_lora_adapter", "", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := s.post("/v1/unload_lora_adapter", "", `{"lora_name":"again"}`); status != http.StatusOK || text != "Success: LoRA adapter 'again' removed successfully." {
		t.Errorf("unload: %d %s", status, text)
	}
	for _, name := range []string{"again", "tiny-base", "nobody"} {
		if status, _ := s.post("/v1/unload_lora_adapter", "", `{"lora_name":"`+name+`"}`); status != http.StatusNotFound {
			t.Errorf("unload %s: %d", name, status)
		}
	}
	if status, _ := s.post("/v1/completions", "", `{"model":"again","prompt":[1]}`); status != http.StatusNotFound {
		t.Errorf("an unloaded adapter: %d", status)
	}
	if got := s.ids(t, "final"); got != final {
		t.Errorf("final gives %s, want %s", got, final)
	}
}

// TestARequestKeepsAnAdapterThatIsUnloaded: a request that waited while its adapter was unloaded was a 500, or ran with
// another one that had taken the name.
func TestARequestKeepsAnAdapterThatIsUnloaded(t *testing.T) {
	shelf := adapterShelf(t, map[string]string{"final": "final", "zero": "init"})
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{tinyBase(t)}}, loraDirFlags: loraDirFlags{LoraDir: shelf}})
	vector := func(m *generate.Model) string {
		t.Helper()
		v, _, err := m.Embed(t.Context(), generate.EmbedRequest{Prompts: [][]int32{{5, 6, 7, 8}}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(v)
	}
	use := func(name string) *generate.Model {
		t.Helper()
		m, err := s.fleet.models.Use(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	change := func(path, body string) {
		t.Helper()
		if status, text := s.post(path, "", body); status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, body, status, text)
		}
	}
	plain, final := vector(use("tiny-base")), vector(use("final"))
	if plain == final {
		t.Fatal("the adapter changes nothing")
	}
	change("/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"final"}`)
	begun := use("a")
	change("/v1/unload_lora_adapter", `{"lora_name":"a"}`)
	if got := vector(begun); got != final {
		t.Errorf("after the adapter was unloaded: %s, want %s", got, final)
	}
	change("/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"zero"}`)
	if got := vector(begun); got != final {
		t.Errorf("after another took the name: %s, want %s", got, final)
	}
	if got := vector(use("a")); got != plain {
		t.Errorf("the other: %s, want %s", got, plain)
	}
}

// TestAdaptersBelongToTheModelOfTheirConfig: of several models, one loaded on demand too, at the start and at run time,
// each with the bits that it gives alone.
func TestAdaptersBelongToTheModelOfTheirConfig(t *testing.T) {
	one, shelf := tinyBase(t), adapterShelf(t, map[string]string{"final": "final", "zero": "init"})
	config := filepath.Join(shelf, "final", "adapter_config.json")
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	fields["base_model_name_or_path"] = "/elsewhere/org/two"
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, data, 0o666); err != nil {
		t.Fatal(err)
	}
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{"one=" + one, "two=" + one}}, loraDirFlags: loraDirFlags{LoraDir: shelf}})
	parents := func() map[string]any {
		_, list := s.ask(t, "GET", "/v1/models", "")
		got := map[string]any{}
		for _, m := range list["data"].([]any) {
			card := m.(map[string]any)
			got[card["id"].(string)] = card["parent"]
		}
		return got
	}
	if got := parents(); got["final"] != "two" || got["zero"] != "one" {
		t.Errorf("parents: %v", got)
	}
	plain, final := s.ids(t, "two"), s.ids(t, "final")
	if plain != s.ids(t, "one") || final == plain || s.ids(t, "zero") != plain {
		t.Errorf("the bases give %s and %s, final %s, zero %s", plain, s.ids(t, "one"), final, s.ids(t, "zero"))
	}
	for base, want := range map[string]any{"two": "two", "one": "one", "": "two"} {
		status, text := s.post("/v1/load_lora_adapter", "", `{"lora_name":"again","lora_path":"final","base_model_name":"`+base+`"}`)
		if got := parents()["again"]; status != http.StatusOK || got != want {
			t.Errorf("base_model_name %q: %d %s, the parent is %v", base, status, text, got)
		}
		if got := s.ids(t, "again"); got != final {
			t.Errorf("on %q the adapter gives %s, want %s", base, got, final)
		}
		if status, text := s.post("/v1/unload_lora_adapter", "", `{"lora_name":"again"}`); status != http.StatusOK {
			t.Errorf("unload: %d %s", status, text)
		}
	}
	for _, base := range []string{"none", "final"} {
		if status, _ := s.post("/v1/load_lora_adapter", "", `{"lora_name":"again","lora_path":"final","base_model_name":"`+base+`"}`); status != http.StatusNotFound {
			t.Errorf("base_model_name %q: %d", base, status)
		}
	}
}

// TestLoraOfAnotherModelIsServed: --lora MODEL/NAME=DIR, also for a model that is loaded on demand, without --lora-dir.
func TestLoraOfAnotherModelIsServed(t *testing.T) {
	one, shelf := tinyBase(t), adapterShelf(t, map[string]string{"final": "final"})
	dir := filepath.Join(shelf, "final")
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{"one=" + one, "org/two=" + one}},
		adapterFlags: adapterFlags{Lora: []string{"org/two/sql=" + dir, "one/first=" + dir, "plain=" + dir}}})
	_, list := s.ask(t, "GET", "/v1/models", "")
	parents := map[string]any{}
	for _, m := range list["data"].([]any) {
		card := m.(map[string]any)
		parents[card["id"].(string)] = card["parent"]
	}
	if parents["sql"] != "org/two" || parents["first"] != "one" || parents["plain"] != "one" || len(parents) != 5 {
		t.Errorf("parents: %v", parents)
	}
	want, base := s.ids(t, "first"), s.ids(t, "one")
	if got := s.ids(t, "sql"); got != want || got == base || s.ids(t, "plain") != want || s.ids(t, "org/two") != base {
		t.Errorf("the adapter gives %s, want %s; the base %s", got, want, base)
	}
	for _, text := range []string{"org/two/one=" + dir, "org/two/=" + dir, "org/two/x=" + t.TempDir(), "org/two/x=", "org/two/org/two=" + dir} {
		c := runCmd{servedFlags: servedFlags{Model: []string{"one=" + one, "org/two=" + one}}, adapterFlags: adapterFlags{Lora: []string{text}}}
		c.sizeFlags = sizeFlags{Dtype: "auto", KVDtype: "auto", Precision: "auto", MaxBatch: 2}
		c.DeviceMap = "auto"
		if _, err := c.request(); err == nil || !strings.Contains(err.Error(), "--lora") {
			t.Errorf("--lora %s: %v", text, err)
		}
	}
}

// TestAnAdminKeyOfTheFileChangesAdapters: the keys file's "admin: true" counts as --admin-key does.
func TestAnAdminKeyOfTheFileChangesAdapters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("- {name: user, key: user}\n- {name: boss, key: boss, admin: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := keys.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	c := runCmd{servedFlags: servedFlags{Model: []string{tinyBase(t)}}, loraDirFlags: loraDirFlags{LoraDir: adapterShelf(t, map[string]string{"final": "final"})}}
	c.operateFlags.keys = set
	s := fleetOf(t, c)
	for key, want := range map[string]int{"": 401, "other": 401, "user": 403, "boss": 200} {
		if status, text := s.post("/v1/load_lora_adapter", key, `{"lora_name":"x","lora_path":"final"}`); status != want {
			t.Errorf("key %q: %d %s, want %d", key, status, text, want)
		}
	}
}

// TestClientsNameOnlyAdaptersOfTheFolder: no path that leads out, by dots, from the root or over a link.
func TestClientsNameOnlyAdaptersOfTheFolder(t *testing.T) {
	outside := adapterShelf(t, map[string]string{"secret": "final"})
	shelf := adapterShelf(t, map[string]string{"final": "final"})
	links := map[string]string{filepath.Join(outside, "secret"): filepath.Join(shelf, "out")}
	if err := os.Mkdir(filepath.Join(shelf, "half"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		links[filepath.Join(outside, "secret", name)] = filepath.Join(shelf, "half", name)
	}
	for to, at := range links {
		if err := os.Symlink(to, at); err != nil {
			t.Skip("this system makes no links: ", err)
		}
	}
	s := fleetOf(t, runCmd{servedFlags: servedFlags{Model: []string{tinyBase(t)}}, loraDirFlags: loraDirFlags{LoraDir: shelf}})
	if got := s.states(t); len(got) != 2 {
		t.Errorf("models: %v", got)
	}
	up, err := filepath.Rel(shelf, filepath.Join(outside, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{up, "final/../" + up, filepath.Join(outside, "secret"), filepath.Join(shelf, "final"), ".", "..", "out", "half", "missing", "final/adapter_config.json", "final\\u0000"} {
		status, text := s.post("/v1/load_lora_adapter", "", `{"lora_name":"x","lora_path":"`+filepath.ToSlash(path)+`"}`)
		if status != http.StatusBadRequest && status != http.StatusNotFound || strings.Contains(text, outside) {
			t.Errorf("lora_path %q: %d %s", path, status, text)
		}
	}
	if got := s.states(t); len(got) != 2 {
		t.Errorf("models: %v", got)
	}
}

// TestChangingAdaptersNeedsAnAdminKey where requests need keys, and there is no endpoint without --lora-dir.
func TestChangingAdaptersNeedsAnAdminKey(t *testing.T) {
	user, shelf := "user", adapterShelf(t, map[string]string{"final": "final"})
	base := servedFlags{Model: []string{tinyBase(t)}, LoadTimeout: time.Minute}
	const load, body = "/v1/load_lora_adapter", `{"lora_name":"x","lora_path":"final"}`
	for name, c := range map[string]struct {
		flags accessFlags
		want  map[string]int
	}{
		"keys":          {accessFlags{APIKey: &user}, map[string]int{"": 401, "user": 403, "admin": 401}},
		"keys of both":  {accessFlags{APIKey: &user, AdminKey: "admin"}, map[string]int{"": 401, "user": 403, "other": 401, "admin": 200}},
		"admin's alone": {accessFlags{AdminKey: "admin"}, map[string]int{"": 401, "admin": 200}},
		"none":          {accessFlags{}, map[string]int{"": 200}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fleetOf(t, runCmd{servedFlags: base, loraDirFlags: loraDirFlags{LoraDir: shelf}, accessFlags: c.flags})
			for key, want := range c.want {
				if status, text := s.post(load, key, body); status != want {
					t.Errorf("key %q: %d %s, want %d", key, status, text, want)
				}
			}
		})
	}
	s := fleetOf(t, runCmd{servedFlags: base})
	if status, _ := s.post(load, "", body); status != http.StatusNotFound {
		t.Errorf("without --lora-dir: %d", status)
	}
	for _, args := range []string{"--lora-dir " + shelf + "/none", "--lora-memory 1GiB", "--lora-dir " + shelf + " --lora-memory much", "--admin-key ,"} {
		misuse{args, 2, "-"}.check(t)
	}
}
