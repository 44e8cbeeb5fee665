package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// A model of the hub cache opens by its name, with its tokenizer.
func TestOpenTakesAModelOfTheHubCache(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	root := filepath.Join(cache, "models--acme--demo")
	if err := os.CopyFS(filepath.Join(root, "snapshots", commit), demo.Files()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "refs"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "refs", "main"), []byte(commit), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acme/demo", "acme/demo@main", "acme/demo@" + commit} {
		m, err := dispatch.Open(name, dispatch.Options{Context: 32, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Checkpoint().Name(); got != "acme/demo" {
			t.Errorf("%s: the model is called %s", name, got)
		}
		m.Close()
		tokenizer, chat, err := text.Open(name)
		if err != nil || tokenizer == nil || !chat.HasTemplate() {
			t.Errorf("%s: the tokenizer: %v", name, err)
		}
		if dir, err := loader.Folder(name); err != nil || filepath.Base(dir) != commit {
			t.Errorf("%s: the folder is %s (%v)", name, dir, err)
		}
	}
	_, err := dispatch.Open("acme/other", dispatch.Options{})
	if err == nil || !strings.Contains(err.Error(), "serve pull acme/other") {
		t.Errorf("a model that is not in the cache: %v", err)
	}
	if _, _, err := text.Open("acme/other"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its tokenizer: %v", err)
	}
}
