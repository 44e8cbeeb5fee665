package hub

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hubcache"
)

// paths has the folders of a repository in the cache.
type paths struct{ root, locks string }

func (c *Client) paths(repo Repo) paths {
	return paths{
		root:  filepath.Join(c.config.Cache, repo.Folder()),
		locks: filepath.Join(c.config.Cache, ".locks", repo.Folder()),
	}
}

func (p paths) blob(hash string) string       { return filepath.Join(p.root, "blobs", hash) }
func (p paths) header(hash string) string     { return filepath.Join(p.root, "headers", hash) }
func (p paths) lock(hash string) string       { return filepath.Join(p.locks, hash+".lock") }
func (p paths) snapshot(commit string) string { return filepath.Join(p.root, "snapshots", commit) }
func (p paths) ref(revision string) string {
	return filepath.Join(p.root, "refs", filepath.FromSlash(revision))
}
func (p paths) pointer(commit, name string) string {
	return filepath.Join(p.snapshot(commit), filepath.FromSlash(name))
}

// disk makes an error of the file system an [Error].
func disk(doing string, err error) error {
	if atomicfile.IsFull(err) {
		doing += " (free some space and pull again: what was fetched is kept)"
	}
	return &Error{Kind: Disk, Reason: doing, Err: err}
}

// holds reports whether there is a regular file of size bytes at path. It follows links.
func holds(path string, size int64) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// resolve returns the commit of a revision in the cache, or "" if the cache does not know it.
func (p paths) resolve(revision string) (string, error) {
	commit, err := hubcache.Commit(p.root, revision)
	if err != nil {
		return "", failf(Disk, "%v", err)
	}
	return commit, nil
}

// setRef records the commit of a revision, unless it is recorded already.
func (p paths) setRef(revision, commit string) error {
	if revision == commit {
		return nil
	}
	if was, err := p.resolve(revision); err == nil && was == commit {
		return nil
	}
	return replace(p.ref(revision), []byte(commit))
}

// replace writes a small file atomically.
func replace(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return disk("making a folder", err)
	}
	if err := atomicfile.WriteFile(path, text); err != nil {
		return disk("writing", err)
	}
	return nil
}

func rename(from, to string) error {
	if err := atomicfile.Rename(from, to); err != nil {
		_ = os.Remove(from)
		return disk("putting a file in its place", err)
	}
	return nil
}

// point makes the snapshot's file: a link to the blob, relative so that the cache can be moved. On
// systems without symbolic links it is a hard link, or else a copy.
func (c *Client) point(f file) error {
	p := c.paths(f.repo)
	blob, pointer := p.blob(f.hash), p.pointer(f.commit, f.name)
	if holds(pointer, f.size) {
		return nil
	}
	dir := filepath.Dir(pointer)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return disk("making the snapshot's folder", err)
	}
	target, err := filepath.Rel(dir, blob)
	if err != nil {
		return disk("making the snapshot's link", err)
	}
	temp := atomicfile.TempName(pointer)
	if c.system.symlink(target, temp) == nil || c.system.link(blob, temp) == nil {
		return rename(temp, pointer)
	}
	if err := copyFile(blob, pointer); err != nil {
		return disk("copying a file into the snapshot", err)
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Write(to, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// Cached returns the folder of a snapshot if the cache has all of it, config.json and the weights.
// An empty revision means main. It uses no network. If something is missing, the error has the kind
// [NotCached].
func (c *Client) Cached(repo Repo, revision string) (string, error) {
	dir, err := c.cached(repo, revision)
	return dir, inFile(err, repo, "")
}

func (c *Client) cached(repo Repo, revision string) (string, error) {
	dir, err := c.snapshotOf(repo, revision)
	if err != nil {
		return "", err
	}
	names, err := fs.Glob(os.DirFS(dir), "*")
	if err != nil || len(names) == 0 {
		return "", failf(NotCached, "revision %s is not in the cache %s", printable(revision), c.config.Cache)
	}
	return dir, missing(dir, names)
}

// snapshotOf returns the folder of a snapshot, which may lack files or not exist. If the cache does
// not know the revision, the error has the kind [NotCached].
func (c *Client) snapshotOf(repo Repo, revision string) (string, error) {
	if revision == "" {
		revision = mainRevision
	}
	if err := checkRevision(revision); err != nil {
		return "", err
	}
	p := c.paths(repo)
	commit, err := p.resolve(revision)
	if err != nil {
		return "", err
	}
	if commit == "" {
		return "", failf(NotCached, "revision %s is not in the cache %s", printable(revision), c.config.Cache)
	}
	return p.snapshot(commit), nil
}

// missing returns an error if a snapshot lacks files that serving needs.
func missing(dir string, names []string) error {
	there := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	}
	weights := findWeights(names)
	isGGUF := func(name string) bool { _, ok := ggufStem(name); return ok }
	if weights.index == "" && len(weights.shards) == 0 && slices.ContainsFunc(names, isGGUF) {
		return nil // which has its config itself
	}
	if !there(configName) {
		return failf(NotCached, "the snapshot in the cache has no %s", configName)
	}
	if weights.index != "" {
		text, err := os.ReadFile(filepath.Join(dir, weights.index))
		if err != nil {
			return failf(NotCached, "the snapshot in the cache has no %s", weights.index)
		}
		if weights.shards, err = readIndex(text); err != nil {
			return err
		}
	}
	if len(weights.shards) == 0 {
		return failf(NotCached, "the snapshot in the cache has no weights")
	}
	absent := 0
	for _, name := range weights.shards {
		if !there(name) {
			absent++
		}
	}
	if absent > 0 {
		return failf(NotCached, "the snapshot in the cache lacks %d of its %d files of weights", absent, len(weights.shards))
	}
	return nil
}

// walk returns the files of a snapshot and their total size.
func walk(dir string) (names []string, bytes int64) {
	files := os.DirFS(dir)
	_ = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return nil // what cannot be read is not listed
		}
		if info, err := fs.Stat(files, name); err == nil && info.Mode().IsRegular() {
			names, bytes = append(names, name), bytes+info.Size()
		}
		return nil
	})
	return names, bytes
}
