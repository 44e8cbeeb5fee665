package hub

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeCache writes two snapshots of acme/demo that share one blob, and one of a model without
// an organisation whose weights are missing.
func fakeCache(t *testing.T) (c *Client, first, second string) {
	t.Helper()
	dir := t.TempDir()
	first, second = strings.Repeat("a", 40), strings.Repeat("b", 40)
	write := func(path, text string) {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(model, commit, name, hash string) {
		path := filepath.Join(dir, "models--"+model, "snapshots", commit, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Join("..", "..", "blobs", hash), path)); err != nil {
			t.Fatal(err)
		}
	}
	for hash, text := range map[string]string{"c0": "{}", "old": "12345678", "new": "1234"} {
		write("models--acme--demo/blobs/"+hash, text)
	}
	for _, commit := range []string{first, second} {
		link("acme--demo", commit, "config.json", "c0")
	}
	link("acme--demo", first, "model.safetensors", "old")
	link("acme--demo", second, "model.safetensors", "new")
	write("models--acme--demo/refs/main", second)
	write("models--acme--demo/refs/v1", first)
	write("models--gpt/snapshots/"+first+"/config.json", "{}")
	write("datasets--acme--words/refs/main", first)
	write(".locks/models--acme--demo/old.lock", "")
	return &Client{config: Config{Cache: dir}}, first, second
}

func TestListNamesSnapshotsAndTheirRevisions(t *testing.T) {
	c, first, second := fakeCache(t)
	models, err := c.List()
	if err != nil || len(models) != 3 {
		t.Fatalf("%v, %v; want 3 snapshots", models, err)
	}
	old, now, gpt := models[0], models[1], models[2]
	if old.Repo != "acme/demo" || old.Commit != first || !slices.Equal(old.Refs, []string{"v1"}) || old.Bytes != 10 || !old.Complete {
		t.Errorf("the older snapshot is %+v", old)
	}
	if now.Commit != second || !slices.Equal(now.Refs, []string{"main"}) || now.Bytes != 6 {
		t.Errorf("the newer snapshot is %+v", now)
	}
	if gpt.Repo != "gpt" || gpt.Complete || gpt.Refs != nil {
		t.Errorf("the model without weights is %+v", gpt)
	}
	if none, err := (&Client{config: Config{Cache: filepath.Join(c.config.Cache, "absent")}}).List(); err != nil || none != nil {
		t.Errorf("an absent cache: %v, %v", none, err)
	}
}

func TestRemoveOfARevisionKeepsSharedBlobs(t *testing.T) {
	c, first, _ := fakeCache(t)
	repo := Repo{Org: "acme", Name: "demo"}
	freed, err := c.Remove(repo, "v1")
	if err != nil || freed != int64(len("12345678")+len(first)) {
		t.Errorf("freed %d bytes, %v; want the blob and the ref", freed, err)
	}
	blobs, _ := os.ReadDir(c.paths(repo).root + "/blobs")
	if len(blobs) != 2 {
		t.Errorf("%d blobs are left; want 2", len(blobs))
	}
	if dir, err := c.Cached(repo, "main"); err != nil {
		t.Errorf("main is broken: %s, %v", dir, err)
	}
	if _, err := c.Remove(repo, "v1"); !Is(err, NotCached) {
		t.Errorf("removing it again: %v", err)
	}
	if _, err := c.Remove(repo, "main"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.paths(repo).root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a model without snapshots is there: %v", err)
	}
}

func TestRemoveOfAModelFollowsTheLinkToAnotherDisk(t *testing.T) {
	c, _, _ := fakeCache(t)
	repo := Repo{Org: "acme", Name: "demo"}
	root, other := c.paths(repo).root, filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.Rename(root, other), os.Symlink(other, root)); err != nil {
		t.Fatal(err)
	}
	if freed, err := c.Remove(repo, ""); err != nil || freed < 14 {
		t.Errorf("freed %d bytes, %v", freed, err)
	}
	for _, path := range []string{root, other, c.paths(repo).locks} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", path)
		}
	}
	if models, err := c.List(); err != nil || len(models) != 1 {
		t.Errorf("%v, %v; want the other model", models, err)
	}
}

func TestRemoveWhileAnotherProcessPullsIsRejected(t *testing.T) {
	c, _, _ := fakeCache(t)
	repo := Repo{Org: "acme", Name: "demo"}
	unlock, err := tryLock(c.paths(repo).lock("old"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := c.Remove(repo, ""); !Is(err, Busy) {
		t.Errorf("got %v, want an error of kind Busy", err)
	}
	if _, err := c.Cached(repo, "main"); err != nil {
		t.Error(err)
	}
}
