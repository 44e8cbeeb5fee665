package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsFindModelsInOnePlace: cmd/serve and cmd/train each searched the cache for themselves
// and disagreed about a single word.
func TestCommandsFindModelsInOnePlace(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
	t.Chdir(t.TempDir())
	const commit = "0123456789abcdef0123456789abcdef01234567"
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, model := range []string{"models--acme--tiny", "models--tiny", "models--acme--half"} {
		root := filepath.Join(cache, model)
		write(filepath.Join(root, "refs", "main"), commit)
		write(filepath.Join(root, "snapshots", commit, "config.json"), "{}")
		if model != "models--acme--half" {
			write(filepath.Join(root, "snapshots", commit, "model.safetensors"), "")
		}
	}
	write(filepath.Join("here", "config.json"), "{}")
	snapshot := func(model string) string { return filepath.Join(cache, model, "snapshots", commit) }
	for name, want := range map[string]string{
		"here": "here", "here/config.json": "here/config.json",
		"acme/tiny": snapshot("models--acme--tiny"), "acme/tiny@main": snapshot("models--acme--tiny"),
		"tiny": snapshot("models--tiny"), "tiny@" + commit: snapshot("models--tiny"),
	} {
		if got, err := Local(name); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"acme/other", "acme/tiny@v2", "acme/half"} { // half has no weights
		var missing *MissingError
		if _, err := Local(name); !errors.As(err, &missing) || missing.Model() != name || !strings.Contains(err.Error(), "serve pull "+name) {
			t.Errorf("%s: got %v, want the command that fetches it", name, err)
		}
	}
	for _, name := range []string{"other", "../tiny", "acme/tiny@../x", "a/b/c", ""} {
		if _, err := Local(name); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "serve pull") {
			t.Errorf("%s: got %v, want no model", name, err)
		}
	}
}

// TestServeOpensWhatPullFetched: `pull ORG/NAME:TYPE` fetched a GGUF file that `serve --model ORG/NAME:TYPE` took for no
// model's name.
func TestServeOpensWhatPullFetched(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
	t.Chdir(t.TempDir())
	const commit = "0123456789abcdef0123456789abcdef01234567"
	root := filepath.Join(cache, "models--acme--tiny-GGUF")
	snapshot := filepath.Join(root, "snapshots", commit)
	for path, text := range map[string]string{
		filepath.Join(root, "refs", "main"):                             commit,
		filepath.Join(snapshot, "tiny-Q4_K_M.gguf"):                     "GGUF",
		filepath.Join(snapshot, "big", "tiny-Q8_0-00001-of-00002.gguf"): "GGUF",
		filepath.Join(snapshot, "big", "tiny-Q8_0-00002-of-00002.gguf"): "GGUF",
		filepath.Join(snapshot, "tiny-Q6_K-00001-of-00002.gguf"):        "GGUF",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"acme/tiny-GGUF:Q4_K_M": filepath.Join(snapshot, "tiny-Q4_K_M.gguf"), "acme/tiny-GGUF:q4_k_m": filepath.Join(snapshot, "tiny-Q4_K_M.gguf"),
		"acme/tiny-GGUF@main:Q8_0": filepath.Join(snapshot, "big", "tiny-Q8_0-00001-of-00002.gguf"),
	} {
		if got, err := Local(name); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"acme/tiny-GGUF:Q2_K", "acme/tiny-GGUF:Q6_K", "acme/other:Q4_K_M"} { // Q6_K lacks a part
		var missing *MissingError
		if _, err := Local(name); !errors.As(err, &missing) || missing.Model() != name || !strings.Contains(err.Error(), "serve pull "+name) {
			t.Errorf("%s: got %v, want the command that fetches it", name, err)
		}
	}
}
