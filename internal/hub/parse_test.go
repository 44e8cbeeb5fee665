package hub

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/hubcache"
)

// TestFromPage: the address of a model's page was no model.
func TestFromPage(t *testing.T) {
	for text, want := range map[string]string{
		DefaultEndpoint + "/acme/tiny":                       "acme/tiny",
		DefaultEndpoint + "/acme/tiny/":                      "acme/tiny",
		DefaultEndpoint + "/acme/tiny/tree/main":             "acme/tiny@main",
		DefaultEndpoint + "/acme/tiny/tree/refs/pr/1?x=y":    "acme/tiny@refs/pr/1",
		DefaultEndpoint + "/acme/tiny/blob/main/config.json": "acme/tiny/blob/main/config.json", // no model's name
		"acme/tiny": "acme/tiny", "./tree/main": "./tree/main", "https://example.org/acme/tiny": "https://example.org/acme/tiny",
	} {
		if got := FromPage(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestParseRepo(t *testing.T) {
	for text, want := range map[string]string{
		"acme/tiny":                    "acme tiny ",
		"Qwen/Qwen2.5-0.5B":            "Qwen Qwen2.5-0.5B ",
		"gpt2":                         " gpt2 ",
		"a/b_c@refs/pr/1":              "a b_c refs/pr/1",
		"acme/tiny@":                   "",
		"acme/tiny@../x":               "",
		"acme/":                        "",
		"/tiny":                        "",
		"a/b/c":                        "",
		"../tiny":                      "",
		"acme/..":                      "",
		"acme/a--b":                    "",
		"acme/a..b":                    "",
		"acme/-a":                      "",
		"acme/a.":                      "",
		"acme/x.git":                   "",
		"acme/ü":                       "",
		"acme/a b":                     "",
		"":                             "",
		"a/" + strings.Repeat("b", 95): "",
	} {
		repo, revision, err := ParseRepo(text)
		if want == "" {
			if !Is(err, BadName) {
				t.Errorf("%q is %v, %v", text, repo, err)
			}
			continue
		}
		if got := repo.Org + " " + repo.Name + " " + revision; err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
		if repo.String() != strings.Split(text, "@")[0] {
			t.Errorf("%q prints %s", text, repo)
		}
	}
	if got := (Repo{Name: "gpt2"}).Folder(); got != "models--gpt2" {
		t.Error(got)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.json", "config.json", true},
		{"*.json", "onnx/config.json", true},
		{"*.json", "config.jsonl", false},
		{"onnx/", "onnx/a/b.json", true},
		{"onnx/", "onnx2/a", false},
		{"model-0000?-of-*", "model-00001-of-00002.safetensors", true},
		{"model-0000[12]*", "model-00003", false},
		{"model-0000[1-3]*", "model-00003", true},
		{"model-0000[!1-3]*", "model-00003", false},
		{"model-0000[!1-3]*", "model-00004", true},
		{"[]]", "]", true},
		{"[a", "[a", true},
		{"a*b*c", "aXbXbXc", true},
		{"a*b*c", "aXbXbX", false},
		{"*", "", true},
		{"?", "é", true},
		{"", "", true},
		{"", "a", false},
	} {
		if got := matches(test.pattern, test.name); got != test.want {
			t.Errorf("%q matches %q: %v", test.pattern, test.name, got)
		}
	}
	start := time.Now()
	matches(strings.Repeat("a*", 200)+"b", strings.Repeat("a", 5000))
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("a hard pattern takes %v", d)
	}
}

func TestFindWeights(t *testing.T) {
	for _, test := range []struct{ names, index, shards string }{
		{"model.safetensors model.safetensors.index.json a.safetensors", "", "model.safetensors"},
		{"model.safetensors.index.json x.safetensors.index.json a.safetensors", "model.safetensors.index.json", ""},
		{"x.safetensors.index.json a.safetensors", "x.safetensors.index.json", ""},
		{"b.safetensors a.safetensors c/model.safetensors .x.safetensors", "", "a.safetensors b.safetensors"},
		{"a.bin", "", ""},
	} {
		got := findWeights(strings.Fields(test.names))
		if got.index != test.index || strings.Join(got.shards, " ") != test.shards {
			t.Errorf("%s: %+v", test.names, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".cache/huggingface/token"), "fromfile\r\n")
	write(filepath.Join(home, "hf/token"), "fromhome\n")
	write(filepath.Join(home, "mine"), " frompath ")
	usual := filepath.Join(home, ".cache/huggingface/hub")
	for _, test := range []struct {
		env     map[string]string
		cache   string
		token   string
		offline bool
	}{
		{nil, usual, "fromfile", false},
		{map[string]string{"HF_HOME": "~/hf"}, filepath.Join(home, "hf/hub"), "fromhome", false},
		{map[string]string{"HF_HOME": "$X/hf", "X": home}, filepath.Join(home, "hf/hub"), "fromhome", false},
		{map[string]string{"XDG_CACHE_HOME": "/xdg"}, "/xdg/huggingface/hub", "", false},
		{map[string]string{"HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/d"}, "/c", "fromfile", false},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": "/d", "HF_TOKEN": "env\n"}, "/d", "env", false},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "old", "HF_HUB_OFFLINE": "yes"}, usual, "old", true},
		{map[string]string{"HF_TOKEN_PATH": "~/mine", "TRANSFORMERS_OFFLINE": "1"}, usual, "frompath", true},
		{map[string]string{"HF_TOKEN": "env", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_HUB_OFFLINE": "0"}, usual, "", false},
	} {
		c, err := Environment(func(name string) string { return test.env[name] }, home)
		if err != nil || c.Cache != test.cache || c.Token != test.token || c.Offline != test.offline {
			t.Errorf("%v: %+v, %v", test.env, c, err)
		}
	}
	_, err := Environment(func(name string) string { return map[string]string{"HF_TOKEN_PATH": home}[name] }, home)
	wantKind(t, err, Disk, "reading the token")
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{
		{},
		{Cache: "x", Endpoint: "ftp://x"},
		{Cache: "x", Endpoint: "huggingface.co"},
		{Cache: "x", Endpoint: "://"},
		{Cache: "x", Token: "a\nb"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestAddressesEscapeNames(t *testing.T) {
	c, err := New(Config{Cache: t.TempDir(), Endpoint: "https://mirror.example/hf/"})
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]string{
		"https://mirror.example/hf/acme/tiny/resolve/" + commit + "/a/b%20%25%3F%23.json": c.place(repo, commit, "a/b %?#.json").String(),
		"https://mirror.example/hf/revision/refs%2Fpr%2F1?blobs=true":                     c.address("blobs=true", "revision", "refs/pr/1").String(),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "soon": 0, "99999999999999": 1e6 * time.Second,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRateLimit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`"api";r=0;t=55`:      55 * time.Second,
		`"api"; r=0; t=55`:    55 * time.Second,
		`"resolvers";r=4;t=5`: 0,
		`"api";r=0;t=x`:       0,
		"":                    0,
	} {
		if got := retryAfter(http.Header{"Ratelimit": {text}}); got != want {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// TestTekkenIsPulled: pull left tekken.json, so a model whose only vocabulary it is had no tokenizer.
func TestTekkenIsPulled(t *testing.T) {
	for _, name := range []string{"tekken.json", "tokenizer.model", "tiktoken.model", "qwen.tiktoken", "vocab.json", "merges.txt"} {
		if first, _ := forServing([]string{name, "README.md"}); !slices.Equal(first, []string{name}) {
			t.Errorf("%s: pull takes %v", name, first)
		}
	}
}

func FuzzListing(f *testing.F) {
	h := &fakeHub{files: tiny(), commit: commit}
	f.Add(h.listing())
	f.Add([]byte(`{"sha":"` + commit + `","siblings":[{"rfilename":"../a","size":1,"lfs":{"sha256":"b","size":2}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseListing(text)
		if err != nil {
			return
		}
		names := l.names()
		first, weights := forServing(names)
		for _, name := range slices.Concat(names, first, weights.shards) {
			if name == "" || strings.ContainsAny(name, "\\\x00") || strings.HasPrefix(name, "/") || strings.Contains("/"+name+"/", "/../") {
				t.Errorf("%q was taken", name)
			}
			if hubcache.UnsafePath(name) == "" && !filepath.IsLocal(filepath.FromSlash(name)) {
				t.Errorf("%q is taken for safe", name)
			}
		}
	})
}

func FuzzReadIndex(f *testing.F) {
	f.Add(tiny()["model.safetensors.index.json"])
	f.Fuzz(func(t *testing.T, text []byte) {
		shards, err := readIndex(text)
		for _, name := range shards {
			if err != nil || strings.Contains(name, "/") || !filepath.IsLocal(name) {
				t.Errorf("%q was taken, with %v", name, err)
			}
		}
	})
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte(`{"size":10,"part":4,"done":[4,0,2]}`), int64(10), int64(10))
	f.Add([]byte(`{"size":9223372036854775807,"part":1,"done":[]}`), int64(9223372036854775807), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, size, have int64) {
		if size < 0 || have < 0 {
			return
		}
		s, ok := readState(text, size, have)
		if ok && (s.done() > size || s.done() < 0) {
			t.Errorf("%s: %d bytes of %d", text, s.done(), size)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-9/10")
	f.Add("bytes 3-5/*")
	f.Fuzz(func(t *testing.T, text string) {
		from, to, size, ok := contentRange(text)
		if ok && (from < 0 || to <= from || size >= 0 && to > size) {
			t.Errorf("%q is [%d, %d) of %d", text, from, to, size)
		}
	})
}

// TestAHomeThatIsNoFolderEndedTheList: with HOME=/dev/null, as services have it, there is no token and no model. Both were errors.
func TestAHomeThatIsNoFolderEndedTheList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "null")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Environment(func(string) string { return "" }, file)
	if err != nil || c.Token != "" {
		t.Fatalf("token %q, %v", c.Token, err)
	}
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if models, err := client.List(); err != nil || len(models) > 0 {
		t.Errorf("models %v, %v", models, err)
	}
}
