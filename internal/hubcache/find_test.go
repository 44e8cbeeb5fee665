package hubcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// fill makes a cache with one model and returns the folder of its snapshot. The working directory is
// an empty folder.
func fill(t *testing.T) string {
	t.Helper()
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	t.Chdir(t.TempDir())
	root := filepath.Join(cache, "models--acme--tiny")
	snapshot := filepath.Join(root, "snapshots", commit)
	for name, text := range map[string]string{
		filepath.Join(root, "refs", "main"):    commit + "\n",
		filepath.Join(root, "refs", "bad"):     "../../etc",
		filepath.Join(snapshot, "config.json"): "{}",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot
}

// A name of a model is its snapshot, by no revision, a branch or a commit.
func TestFindInTheCache(t *testing.T) {
	want := fill(t)
	for _, model := range []string{"acme/tiny", "acme/tiny@main", "acme/tiny@" + commit, want, filepath.Dir(filepath.Dir(want)), filepath.Join(want, "config.json")} {
		if got, err := Folder(model); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", model, got, err, want)
		}
	}
}

// A folder here wins over a model of that name.
func TestAFolderComesBeforeTheCache(t *testing.T) {
	fill(t)
	if err := os.MkdirAll(filepath.Join("acme", "tiny"), 0o777); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("acme/tiny"); err != nil || got != "acme/tiny" {
		t.Errorf("got %s (%v)", got, err)
	}
}

// A model that is neither here nor in the cache is an error that says how to fetch it. Names that a
// hub rejects lead nowhere.
func TestFindReportsMissingModels(t *testing.T) {
	fill(t)
	for _, model := range []string{"acme/other", "acme/tiny@v2", "acme/tiny@" + strings.Repeat("f", 40)} {
		_, err := Find(model)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "serve pull "+model) {
			t.Errorf("%s: %v", model, err)
		}
	}
	for _, model := range []string{"tiny", "../acme/tiny", "acme/tiny@../../x", "acme/..", "a/b/c", ""} {
		_, err := Find(model)
		if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "serve pull") {
			t.Errorf("%s: %v", model, err)
		}
	}
	if _, err := Find("acme/tiny@bad"); err == nil || !strings.Contains(err.Error(), "want a commit") {
		t.Errorf("a ref that leads out of the cache: %v", err)
	}
}
